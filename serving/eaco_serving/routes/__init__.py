"""One module a group of REST calls; each exposes ``add_to(app)``."""
