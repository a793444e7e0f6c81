"""Records a job's graph in a process of its own, with limits of time and memory: a bad job cannot take the caller down.

This protects from accidents, not from malice: the job's code runs with the rights of whoever calls.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from eaco_datasets.errors import EacoError, InputError, MissingExtraError
from eaco_features.graphs.child import ERROR, GRAPH, split_spec
from eaco_features.graphs.graph import ModelGraph
from eaco_features.graphs.store import read_graph

_MARK = "EACO_EXTRACTION"


def extract(
    job: str,
    batch_size: int,
    *,
    timeout_s: float = 60.0,
    memory_mib: int = 8192,
    search_path: Sequence[str | Path] = (),
) -> ModelGraph:
    """The graph of the job that ``pkg.mod:build_job`` names.

    The module is imported from the working directory, ``search_path`` or the installed packages. What the job prints
    is dropped, and every process that it leaves behind is ended: its process group, and where ``/proc`` exists those
    in sessions of their own.

    Args:
        memory_mib: memory that the job may map beyond what torch itself takes (enforced where ``/proc`` exists).

    Raises:
        InputError: a bad limit or name, a job that fails, does not end in time, needs more memory, or dies.
        MissingExtraError: torch is not installed.
    """
    for name, value in (("batch_size", batch_size), ("timeout_s", timeout_s), ("memory_mib", memory_mib)):
        if not value > 0:  # NaN too
            raise InputError(f"{value}", where=name, expected="more than 0")
    split_spec(job)
    if find_spec("torch") is None:
        raise MissingExtraError("torch", "gnn")
    with tempfile.TemporaryDirectory(prefix="eaco-graph-") as folder:
        code = _run(
            job,
            batch_size,
            Path(folder),
            timeout_s=timeout_s,
            memory_mib=memory_mib,
            search_path=search_path,
        )
        return _outcome(job, Path(folder), code)


def _run(
    job: str, batch_size: int, folder: Path, *, timeout_s: float, memory_mib: int, search_path: Sequence[str | Path]
) -> int:
    """Exit code of the recording process; negative is a signal's number."""
    command = [sys.executable, "-m", "eaco_features.graphs.child", job, str(batch_size), str(folder), str(memory_mib)]
    paths = [*map(str, search_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "CUDA_VISIBLE_DEVICES": "", _MARK: str(folder)}
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(
        command, env=environment, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
    )
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise InputError(
            f"the job did not end within {timeout_s:g} s", where=job, expected="two training steps within the limit"
        ) from None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _end_marked(f"{_MARK}={folder}")


def _end_marked(mark: str) -> None:
    """End the processes in whose environment the mark is: daemons that the job has started."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)


def _outcome(job: str, folder: Path, code: int) -> ModelGraph:
    if (folder / GRAPH).exists():
        return read_graph(folder / GRAPH)
    if (folder / ERROR).exists():
        said = json.loads((folder / ERROR).read_text(encoding="utf-8"))
        if "failed" in said:
            raise EacoError(said["failed"])
        raise InputError(said["what"], where=said["where"], expected=said["expected"])
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    raise InputError(f"the job's process {how}", where=job, expected="a build_job whose step returns")
