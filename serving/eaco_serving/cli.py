"""The ``eaco`` command: the composition root.

Sub-commands are imported when they are called, so ``eaco --help`` costs nothing. Exit codes: 0 done, 1 the work
failed, 2 the call or its input is wrong, 130 interrupted. A failure is one line on stderr; only an output that nobody
reads any more (a broken pipe) ends without a word, with 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from eaco_datasets.errors import EacoError, InputError, MissingExtraError

COMMANDS = {
    "demo": "Start the service, ask it for a prediction and a placement, stop it.",
    "serve": "Serve predictions and placements over REST.",
    "predict": "Predict speed and power of jobs that share GPUs.",
    "place": "Decide where a job goes in a cluster.",
    "train": "Train a predictor on profiles; track and register it.",
    "evaluate": "Measure a model's error on work it has not seen.",
    "datasets": "List, describe, check and fetch measured profiles.",
    "features": "Record and list model graphs of training jobs.",
    "predictors": "List, compare, promote and roll back registered predictors.",
}
"""Sub-command -> one line of help; each is ``eaco_serving.commands.<name>``."""

DONE, FAILED, WRONG, INTERRUPTED = 0, 1, 2, 130


class LazyGroup(TyperGroup):
    """Lists sub-commands by name and imports the one that is called."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for name, line in COMMANDS.items():
            self.add_command(TyperCommand(name, help=line))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The called sub-command itself, in place of the stand-in that help lists.

        A group of commands called alone, like ``eaco`` itself, shows its help: that is no failure.
        """
        name, stand_in, rest = super().resolve_command(ctx, args)
        if stand_in is None or name is None:
            return name, stand_in, rest
        module = import_module(f"eaco_serving.commands.{name}")
        command = typer.main.get_command(module.app)
        return name, command, rest or (["--help"] if isinstance(command, TyperGroup) else [])


def version() -> str:
    """The installed version of EaCO."""
    from importlib.metadata import version as installed

    return installed("eaco")


def build() -> typer.Typer:
    """The root command; nothing of it runs on import."""
    root = typer.Typer(
        name="eaco",
        cls=LazyGroup,
        help="Predicts speed and power of deep-learning training jobs that share GPUs, and places jobs by it.",
        add_completion=False,
        invoke_without_command=True,
        pretty_exceptions_enable=False,
    )

    @root.callback()
    def start(
        ctx: typer.Context,
        show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    ) -> None:
        if show_version:
            typer.echo(f"eaco {version()}")
            raise typer.Exit
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help())

    return root


def run(args: Sequence[str]) -> int:
    """Run ``eaco ARGS`` and return its exit code; whatever goes wrong is one line on stderr."""
    command = typer.main.get_command(build())
    try:
        code = command.main(args=list(args), prog_name="eaco", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        _silence_stdout()
        return FAILED
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except Exception as error:
        # A KeyboardInterrupt that typer turned into its Exit(130) comes back as a code, not as an exception.
        return _report(error)
    return code if isinstance(code, int) and not isinstance(code, bool) else DONE


def _report(error: Exception) -> int:
    if os.environ.get("EACO_DEBUG") == "1":
        import traceback

        traceback.print_exc()
    if isinstance(error, typer.TyperException):
        return _fail(f"{error.format_message()} (see eaco --help)", WRONG if error.exit_code == WRONG else FAILED)
    if isinstance(error, InputError | MissingExtraError):
        return _fail(str(error), WRONG)
    if isinstance(error, EacoError):
        return _fail(str(error), FAILED)
    return _fail(f"internal error: {type(error).__name__}: {error} (EACO_DEBUG=1 shows where)", FAILED)


def _fail(line: str, code: int) -> int:
    typer.echo(f"eaco: {' '.join(line.split())}", err=True)
    return code


def _silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's own flush at exit finds no broken pipe."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def main() -> None:
    """Console entry point."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
