"""Registered model graphs: a file each in ``EACO_HOME``/graphs, shared by all processes of that home.

A file is the body of the ``POST /catalogue`` that registered it. Files come and go whole, by rename; whoever asks for
what is registered sees what others have written since. To take a graph back, delete its file.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import ValidationError

from eaco_datasets.errors import ConflictError, DataError, EacoError, InputError
from eaco_datasets.names import family_of, is_known_family
from eaco_datasets.types import CoLocation
from eaco_features.graphs.graph import COST_COLUMNS, ModelGraph, to_document
from eaco_features.graphs.store import from_document
from eaco_features.job_graphs import GraphBook
from eaco_features.zoo.catalogue import reference_jobs
from eaco_serving.problems import refuse_fields
from eaco_serving.schemas import MAX_BATCH_SIZE
from eaco_serving.schemas_catalogue import RegisterIn
from eaco_serving.strict_json import parse_strict

MAX_REGISTERED = 1000
"""Most graphs of one home: each is kept in memory by each process that serves."""

MAX_COST, MAX_KERNELS, MAX_PARAMS = 1e30, 10**9, 10**15
"""Most FLOPs or bytes of a step, its kernel launches, and the parameters that they read: far beyond any real job, and
small enough that no sum, quotient or product of them overflows."""

MAX_WORDS = 4096
"""Most distinct operations or dtypes of a graph: ATen has some 2,500, and checking takes their number times nodes."""

_ENDING = ".json.gz"
_LONGEST = 200
_SETTLED_NS = 10**9
"""A folder that changed less than this ago is read again: its time may not tell two changes apart."""


@dataclass(frozen=True)
class Registration:
    """A graph and the name that it was registered under; ``family`` is the slug that jobs are looked up by."""

    model: str
    family: str
    graph: ModelGraph
    samples_per_epoch: float | None = None


@dataclass(frozen=True)
class Registered:
    """All that is registered at one moment, by family."""

    by_family: Mapping[str, Registration] = field(default_factory=dict)

    @cached_property
    def book(self) -> GraphBook:
        """The graphs, before those of the catalogue."""
        return GraphBook({family: one.graph for family, one in self.by_family.items()})

    @cached_property
    def _sizes(self) -> dict[str, float]:
        return {f: one.samples_per_epoch for f, one in self.by_family.items() if one.samples_per_epoch is not None}

    def sized(self, sets: Sequence[CoLocation]) -> Sequence[CoLocation]:
        """The sets, with the registered size of the training data for each job that does not state it."""
        sizes = self._sizes
        if not sizes:
            return sets
        return [
            replace(
                one,
                jobs=tuple(
                    replace(job, samples_per_epoch=sizes[job.family])
                    if job.samples_per_epoch is None and job.family in sizes
                    else job
                    for job in one.jobs
                ),
            )
            for one in sets
        ]


def registration(model: str, graph: ModelGraph, samples_per_epoch: float | None = None) -> Registration:
    """A graph as it can be registered.

    Raises:
        InputError: at ``/model``: no letter or digit in it, or the catalogue has a job of that name.
        DataError: at ``/graph/...``: it has no backward pass, or numbers beyond any real job.
    """
    try:
        family = family_of(model)
    except InputError as error:
        raise error.at("/model") from None
    if is_known_family(family) or family in {job.name for job in reference_jobs()}:
        raise InputError(f"{model!r} is a name of the catalogue", where="/model", expected="a name of your own")
    _check(graph)
    return Registration(model, family, graph, samples_per_epoch)


def graph_in(wire: RegisterIn) -> ModelGraph:
    """The graph in a body, its hash verified.

    Raises:
        DataError: at ``/graph/...``.
    """
    for name in ("ops", "dtypes"):
        words = wire.graph.get(name)
        if isinstance(words, list) and len(words) > MAX_WORDS:
            raise DataError(f"{len(words)} names", where=f"/graph/{name}", expected=f"at most {MAX_WORDS}")
    try:
        return from_document(wire.graph)
    except DataError as error:
        where = f"/graph{error.where}".rstrip("/")
        raise DataError(_short(error.what), where=_short(where), expected=_short(error.expected)) from error


class GraphStore:
    """The registered graphs of one home, for many threads.

    Args:
        home: the folder of EaCO's state; it need not exist.
        report: told of each file that cannot be read, in one line; such a file is passed over.
    """

    def __init__(self, home: Path, report: Callable[[str], None]) -> None:
        self.folder, self._report = home / "graphs", report
        self._lock = threading.Lock()
        self._files: dict[str, _File] = {}
        self._registered = Registered()
        self._seen_ns: int | None = None

    @property
    def known(self) -> Registered:
        """What was registered when ``registered`` or ``register`` was last called; reads nothing."""
        return self._registered

    def changed(self) -> bool:
        """Whether there may be more to read: one look at the folder's time of change."""
        return self._seen_ns != _changed_ns(self.folder)

    def registered(self) -> Registered:
        """What is registered now. Looks at the folder's time of change, and reads what is new since the last call.

        While another thread reads, what was known before is the answer.
        """
        if self.changed() and self._lock.acquire(blocking=False):
            try:
                self._read_folder()
            finally:
                self._lock.release()
        return self._registered

    def register(self, wanted: Registration, *, over: bool = False) -> tuple[Registration, bool]:
        """Keep a graph; what is registered then, and whether the name is new. The same graph again changes nothing.

        Args:
            over: whether it takes the place of another graph of that name.

        Raises:
            ConflictError: the name has another graph or another size of the training data, or there are too many.
            EacoError: the folder cannot be written to.
        """
        raw = _packed(wanted)
        try:
            with _only_writer(self.folder), self._lock:
                self._read_folder()
                before = self._registered.by_family.get(wanted.family)
                if before is not None and _same(before, wanted):
                    return before, False
                if before is not None and not over:
                    what = f"graph {before.graph.content_hash}, samples_per_epoch {before.samples_per_epoch}"
                    raise ConflictError(
                        f"{before.model!r} is registered already: {what}; ask to replace it if you mean to"
                    )
                if before is None and len(self._registered.by_family) >= MAX_REGISTERED:
                    raise ConflictError(f"{MAX_REGISTERED} graphs are registered; delete one's file first")
                name = wanted.family + _ENDING
                self._keep({**self._files, name: _File(_write(self.folder, name, raw), wanted)})
        except OSError as error:
            raise EacoError(f"cannot write to {self.folder}: {error.strerror or error}") from error
        return wanted, before is None

    def _read_folder(self) -> None:
        """Read the files that are new or changed; with the lock held."""
        changed_ns = _changed_ns(self.folder)
        self._seen_ns = changed_ns if time.time_ns() - changed_ns > _SETTLED_NS else None
        found: dict[str, _File] = {}
        try:
            with os.scandir(self.folder) as entries:
                names = sorted(e.name for e in entries if e.name.endswith(_ENDING) and not e.name.startswith("."))
        except FileNotFoundError:
            names = []
        except OSError as error:
            self._report(f"{self.folder}: {error.strerror or error}; what was known before stays")
            return
        for name in names:
            try:
                stamp = _stamp(os.stat(self.folder / name))
            except FileNotFoundError:  # deleted meanwhile
                continue
            except OSError:  # reading it says why
                stamp = (0, 0, 0)
            known = self._files.get(name)
            found[name] = known if known and known.stamp == stamp else _File(stamp, self._read(self.folder / name))
        self._keep(found)

    def _keep(self, files: dict[str, _File]) -> None:
        self._files = files
        self._registered = Registered({f.content.family: f.content for f in files.values() if f.content is not None})

    def _read(self, path: Path) -> Registration | None:
        try:
            wire = RegisterIn.model_validate(parse_strict(gzip.decompress(path.read_bytes())))
            found = registration(wire.model, graph_in(wire), wire.samples_per_epoch)
            if found.family + _ENDING != path.name:
                raise DataError(f"the graph of {found.model!r}", expected=f"a file called {found.family}{_ENDING}")
            return found
        except ValidationError as error:
            reason = refuse_fields(error.errors(include_url=False, include_context=False)).detail
        except (EacoError, OSError, EOFError, zlib.error, ValueError) as error:
            reason = str(error)
        self._report(f"{path}: no registered graph, passed over: {' '.join(reason.split())}")
        return None


def _short(text: str) -> str:
    """What an error repeats of a document: one line, not too long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


class _File(NamedTuple):
    """A file as it was read: which it was, and its content, None when it could not be read."""

    stamp: tuple[int, int, int]
    content: Registration | None


def _check(graph: ModelGraph) -> None:
    """Refuse a graph that no prediction of training can be made from."""
    if not {"bwd", "opt"} & set(graph.phase):
        raise DataError(
            "no backward pass and no optimizer step: an inference-only graph says little of training",
            where="/graph/nodes/phase",
            expected="the graph of a training step, as `eaco features extract` records it",
        )
    for batch_size in (1, MAX_BATCH_SIZE):
        with np.errstate(over="ignore"):
            costs = graph.at(batch_size)
            sums = {name: float(getattr(costs, name).sum()) for name in COST_COLUMNS}
        for name, value in sums.items():
            if not value <= MAX_COST:
                raise DataError(
                    f"{value:g} in all at batch size {batch_size}",
                    where=f"/graph/nodes/{name}",
                    expected=f"at most {MAX_COST:g}",
                )
        if sums["bytes_read"] + sums["bytes_written"] < 1:
            raise DataError(
                f"no bytes moved at batch size {batch_size}", where="/graph/nodes/bytes_read", expected="1 or more"
            )
        if not 1e-6 <= costs.samples <= 1e12:
            raise DataError(
                f"{costs.samples:g} samples a step at batch size {batch_size}",
                where="/graph/recording/samples",
                expected="1e-6 to 1e12",
            )
    for name, most in (("kernels", MAX_KERNELS), ("params", MAX_PARAMS)):
        count = sum(getattr(graph, name).tolist())
        if count > most:
            raise DataError(f"{count} in all", where=f"/graph/nodes/{name}", expected=f"at most {most}")


def _same(one: Registration, other: Registration) -> bool:
    return one.graph == other.graph and one.samples_per_epoch == other.samples_per_epoch


def _packed(one: Registration) -> bytes:
    graph = {**to_document(one.graph), "content_hash": one.graph.content_hash}
    document = {"model": one.model, "samples_per_epoch": one.samples_per_epoch, "graph": graph}
    return gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0)


def _changed_ns(folder: Path) -> int:
    """When something in the folder was last made, renamed or deleted; 0 when there is none."""
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _stamp(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_mtime_ns, found.st_size


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Holds off the other writers of a folder, in this process and others; makes the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when the file is closed, or its process dies
        yield


def _write(folder: Path, name: str, raw: bytes) -> tuple[int, int, int]:
    """Write a file whole or not at all, and durably; which it is. By the only writer."""
    unfinished = folder / ".unfinished"
    with unfinished.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
        stamp = _stamp(os.fstat(file.fileno()))
    unfinished.replace(folder / name)
    at = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(at)
    finally:
        os.close(at)
    return stamp
