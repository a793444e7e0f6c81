"""Records one job in a process of its own: ``python -m eaco_features.graphs.child SPEC BATCH FOLDER MEMORY_MIB``.

The parent (``extract``) reads ``graph.json`` or ``error.json`` in the folder; nothing else of this process counts.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eaco_datasets.errors import EacoError, InputError

GRAPH, ERROR = "graph.json", "error.json"


def main(arguments: Sequence[str]) -> None:
    """Record, and leave the graph or the error in the folder."""
    spec, batch_size, folder, memory_mib = arguments
    owner = os.getpid()
    name, text = GRAPH, ""
    try:
        text = _recorded(spec, int(batch_size), int(memory_mib))
    except MemoryError:
        name, text = ERROR, _as_json(InputError("the job ran out of memory", where=spec, expected=_less(memory_mib)))
    except InputError as error:
        name, text = ERROR, _as_json(_told_of_memory(error, memory_mib))
    except EacoError as error:
        name, text = ERROR, json.dumps({"failed": str(error)})
    if os.getpid() == owner:  # a process that the job forked comes this way too
        _put(Path(folder), name, text)
    os._exit(0)  # the job's threads and exit hooks have no say any more


def split_spec(spec: str) -> tuple[str, str]:
    """Module and function in ``pkg.mod:build_job``.

    Raises:
        InputError: the text is no such name.
    """
    module_name, _, attribute = spec.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), *attribute.split("."))):
        raise InputError(f"cannot read {spec!r} as a job", where="JOB", expected="pkg.mod:build_job")
    return module_name, attribute


def load_builder(spec: str) -> Any:
    """The function that ``pkg.mod:build_job`` names.

    Raises:
        InputError: the text is no such name, the module cannot be imported or has no such function.
    """
    module_name, attribute = split_spec(spec)
    try:
        found: Any = importlib.import_module(module_name)
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        said = " ".join(str(error).split())[:200]
        raise InputError(
            f"cannot import {module_name}: {type(error).__name__}: {said}",
            where=spec,
            expected="a module that can be imported from the working directory",
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InputError(f"{module_name} has no {attribute!r}", where=spec, expected="a build_job function")
        found = getattr(found, part)
    if not callable(found):
        raise InputError(f"{attribute} is {type(found).__name__}", where=spec, expected="a build_job function")
    return found


def _recorded(spec: str, batch_size: int, memory_mib: int) -> str:
    from eaco_features.graphs.recorder import record
    from eaco_features.graphs.store import dumps

    _limit_memory(memory_mib)
    return dumps(record(load_builder(spec), batch_size, name=spec))


def _limit_memory(memory_mib: int) -> None:
    """Bound what the job may map beyond what Python and torch have mapped so far, where the system tells."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        mapped = int(statm.read_text().split()[0]) * resource.getpagesize()
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        limit = mapped + memory_mib * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit if most < 0 else min(limit, most), most))


def _less(memory_mib: str) -> str:
    return f"a job that records within {memory_mib} MiB"


def _told_of_memory(error: InputError, memory_mib: str) -> InputError:
    """The same error, with the limit in it where the job's own error was that memory ran out."""
    if any(sign in error.what for sign in ("MemoryError", "can't allocate memory", "Cannot allocate memory")):
        return InputError(error.what, where=error.where, expected=_less(memory_mib))
    return error


def _as_json(error: InputError) -> str:
    return json.dumps({"what": error.what, "where": error.where, "expected": error.expected})


def _put(folder: Path, name: str, text: str) -> None:
    partial = folder / f"{name}.partial"
    partial.write_text(text, encoding="utf-8")
    partial.replace(folder / name)


if __name__ == "__main__":
    main(sys.argv[1:])
