"""One module a sub-command of ``eaco``; each exposes ``app: typer.Typer`` and is imported only when it is called."""
