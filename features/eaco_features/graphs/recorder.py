"""Records the second training step of a job, without doing its arithmetic wherever that is possible.

The step runs on fake tensors (shapes without data) at the batch size asked for and at twice that; the two give each
cost's slope and intercept. Where that fails, it runs for real at tiny batch sizes.
"""

from __future__ import annotations

import gc
import logging
import random
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

from eaco_datasets.errors import EacoError, InputError
from eaco_features.graphs.cuda_like import gpu_code_on_cpu, watched_optimizers
from eaco_features.graphs.fit import Kernel, fit
from eaco_features.graphs.fused import fused_kernels
from eaco_features.graphs.graph import Mode, ModelGraph, Recording
from eaco_features.graphs.job import BuildJob, TrainingJob
from eaco_features.graphs.tape import Tape, state_bytes

REAL_BATCH = 2
"""Batch size of a real run: the smallest that batch normalisation takes."""

MAX_CHECKED_KERNELS = 3_000
"""A step of more kernels is not run a third time to check that its costs are affine."""


@dataclass(frozen=True)
class Trace:
    """One recorded step."""

    batch_size: int
    samples: int
    kernels: list[Kernel]
    parameter_count: int
    parameter_bytes: int
    trainable_bytes: int
    buffer_bytes: int
    optimizer_state_bytes: int
    optimizers: tuple[str, ...]
    value_reads: int
    shape_guesses: int


class _JobError(Exception):
    """The job's own code failed; the cause is what it raised."""


class _SharedFakeMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """A fake mode that a deep copy of a model shares."""

    def __deepcopy__(self, _memo: Any) -> _SharedFakeMode:
        return self


def record(build_job: BuildJob, batch_size: int, *, name: str = "", allow_real: bool = True) -> ModelGraph:
    """The model graph of a job, affine in the batch size, anchored at ``batch_size``.

    A job that cannot run on fake tensors is run for real at batch sizes ``REAL_BATCH`` and twice that, which costs its
    arithmetic and memory, unless ``allow_real`` is off. The job's code runs in this process: for code that is not
    trusted to end, use ``extract``.

    Raises:
        InputError: the batch size is below 1, or the job fails on both ways; the message has the job's own error.
    """
    if batch_size < 1:
        raise InputError(f"batch size {batch_size}", where="batch_size", expected="1 or more")
    name = name or getattr(build_job, "__name__", "job")
    try:
        return _recorded(build_job, batch_size, name, "fake")
    except _JobError as failed:
        if not allow_real:
            raise _explained(failed, name) from failed.__cause__
        reason = _one_line(failed.__cause__)
    try:
        return _recorded(build_job, REAL_BATCH, name, "real", f"run for real, as fake tensors failed: {reason}")
    except _JobError as failed:
        raise _explained(failed, name) from failed.__cause__


def trace(build_job: BuildJob, batch_size: int, *, mode: Mode = "fake") -> Trace:
    """The second step of a job at one batch size.

    Raises:
        InputError: ``build_job`` does not return a ``TrainingJob``, or its step runs no kernel.
    """
    tape = Tape(fake=mode == "fake")
    seen: dict[int, Any] = {}

    def stepping(optimizer: Any, starts: bool) -> None:
        seen[id(optimizer)] = optimizer
        tape.stepping = max(tape.stepping + (1 if starts else -1), 0)

    with _surroundings(tape, mode) as stack:
        stack.enter_context(watched_optimizers(stepping))
        with _job_code():
            job = build_job(batch_size)
        if not isinstance(job, TrainingJob):
            raise InputError(f"build_job returned {type(job).__name__}", where="build_job", expected="a TrainingJob")
        if mode == "real":
            _drop_fake_gradients(job)
        with _job_code():
            job.step()
        tape.stepping = 0
        return _second_step(job, batch_size, tape, seen)


def _second_step(job: TrainingJob, batch_size: int, tape: Tape, seen: dict[int, Any]) -> Trace:
    parameters = [p for module in job.modules for p in module.parameters()]
    buffers = [b for module in job.modules for b in module.buffers()]
    optimizers = [*job.optimizers, *(o for o in seen.values() if not any(o is known for known in job.optimizers))]
    states = [t for o in optimizers for state in o.state.values() for t in _tensors_of(state)]
    tape.adopt(parameters, parameters=True)
    tape.adopt([*buffers, *states])
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    try:
        tape.recording = True
        with _job_code():
            job.step()
    finally:
        tape.recording = False
        if collecting:
            gc.enable()
    if not tape.kernels:
        raise InputError("the step ran no tensor operation", where="step", expected="one training step")
    return Trace(
        batch_size=batch_size,
        samples=batch_size if job.samples_per_step is None else job.samples_per_step,
        kernels=tape.kernels,
        parameter_count=sum(p.numel() for p in _distinct(parameters)),
        parameter_bytes=state_bytes(parameters),
        trainable_bytes=state_bytes([p for p in parameters if p.requires_grad]),
        buffer_bytes=state_bytes(buffers),
        optimizer_state_bytes=state_bytes([t for t in states if t.dim() > 0]),
        optimizers=tuple(type(o).__name__ for o in optimizers),
        value_reads=tape.value_reads,
        shape_guesses=tape.shape_guesses,
    )


def _recorded(build_job: BuildJob, batch_size: int, name: str, mode: Mode, *notes: str) -> ModelGraph:
    first = trace(build_job, batch_size, mode=mode)
    second = trace(build_job, 2 * batch_size, mode=mode)
    third = trace(build_job, 3 * batch_size, mode=mode) if len(first.kernels) <= MAX_CHECKED_KERNELS else None
    fitted = fit(first.kernels, second.kernels, None if third is None else third.kernels, batch_size)
    phases = {kernel.phase for kernel in first.kernels}
    missing = [
        *(["no backward pass ran"] if "bwd" not in phases else []),
        *(["no optimizer stepped"] if "opt" not in phases else []),
        *([fitted.note] if fitted.note else []),
    ]
    slope = (second.samples - first.samples) / batch_size
    return ModelGraph(
        name=name,
        torch_version=str(torch.__version__),
        recording=Recording(
            batch_size=batch_size,
            mode=mode,
            samples=(first.samples - slope * batch_size, slope),
            parameter_count=first.parameter_count,
            parameter_bytes=first.parameter_bytes,
            trainable_bytes=first.trainable_bytes,
            buffer_bytes=first.buffer_bytes,
            optimizer_state_bytes=first.optimizer_state_bytes,
            optimizers=first.optimizers,
            value_reads=first.value_reads,
            shape_guesses=first.shape_guesses,
            affine=fitted.affine,
            notes=(*notes, *missing),
        ),
        **fitted.columns,
    )


@contextmanager
def _surroundings(tape: Tape, mode: Mode) -> Iterator[ExitStack]:
    """All modes and patches under which a job is built and stepped; the caller's torch state is as before after it."""
    dtype, python_random = torch.get_default_dtype(), random.getstate()
    with ExitStack() as stack:
        stack.callback(torch.set_default_dtype, dtype)
        stack.callback(random.setstate, python_random)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(patch.object(logging.getLogger(FakeTensorMode.__module__), "disabled", True))
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(torch.enable_grad())
        if gc.get_freeze_count() == 0:
            gc.freeze()  # collecting before the second step then looks at the job's objects only
            stack.callback(gc.unfreeze)
        torch.manual_seed(0)
        random.seed(0)
        stack.enter_context(fused_kernels(guess_lengths=tape.fake, on_pack=tape.note_guess))
        stack.enter_context(gpu_code_on_cpu())
        if mode == "fake":
            stack.enter_context(_SharedFakeMode(allow_non_fake_inputs=True))
        stack.enter_context(tape)
        stack.enter_context(saved_tensors_hooks(tape.keep_for_backward, lambda kept: kept))
        yield stack


@contextmanager
def _job_code() -> Iterator[None]:
    """Whatever the job's own code raises is a ``_JobError``, a call of ``sys.exit`` included."""
    try:
        yield
    except (KeyboardInterrupt, EacoError):
        raise
    except BaseException as error:
        raise _JobError from error


def _drop_fake_gradients(job: TrainingJob) -> None:
    """A model made at import outlives the fake run that failed before this one."""
    for module in job.modules:
        for parameter in module.parameters():
            if isinstance(parameter.grad, FakeTensor):
                parameter.grad = None


def _tensors_of(state: Any) -> list[torch.Tensor]:
    values = state.values() if isinstance(state, dict) else [state]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _distinct(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return list({id(t): t for t in tensors}.values())


def _one_line(error: BaseException | None) -> str:
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said[:200]}" if said else type(error).__name__


def _explained(failed: _JobError, name: str) -> InputError:
    cause = failed.__cause__
    return InputError(
        f"the job failed: {_one_line(cause)}{_place(cause)}", where=name, expected="a training step that runs"
    )


def _place(error: BaseException | None) -> str:
    """The innermost line of the job's own code, as `` (train.py:12)``."""
    libraries = (str(Path(torch.__file__).parent), str(Path(__file__).parent))
    frames = traceback.extract_tb(error.__traceback__ if error else None)
    ours = [f for f in frames if not f.filename.startswith((*libraries, "<"))]
    outside = [f for f in ours if "site-packages" not in f.filename and not f.filename.endswith("contextlib.py")]
    if not outside:
        return ""
    return f" ({Path(outside[-1].filename).name}:{outside[-1].lineno})"
