"""One module a group of REST calls; each exposes ``router() -> APIRouter``."""
