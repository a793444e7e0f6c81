"""Records every kernel that a step launches, with its phase, its costs and the kernels that it waits for."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from eaco_features.graphs.dynamic import VALUE_READS, answer, guesses_shape, remember_parts
from eaco_features.graphs.fit import Kernel
from eaco_features.graphs.flops import class_of, flops_of
from eaco_features.graphs.traffic import bytes_of, mutated, storage_of, tensors_in, traffic

MAX_READS = 2_000
"""Values read on the host before a fake run gives up: control flow waits for a value that never comes."""

_SILENT = ("empty", "new_empty", "detach", "alias", "_assert", "sym_", "record_stream")
_HIDDEN_NAMESPACES = frozenset({"prim", "profiler", "prims"})


class EndlessReadsError(RuntimeError):
    """A step on fake tensors reads values without end."""


@dataclass
class _Held:
    """A storage that is alive: its size, the kernel that wrote it last (-1: none of this step), and its role."""

    nbytes: int
    writer: int = -1
    saved: bool = False
    parameter: bool = False


@dataclass
class Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that tracks storages always, and writes kernels down while ``recording``.

    ``fake`` says that tensors have no data, so that what depends on data needs an answer.
    """

    fake: bool
    recording: bool = False
    kernels: list[Kernel] = field(default_factory=list)
    live_bytes: int = 0
    value_reads: int = 0
    shape_guesses: int = 0
    stepping: int = 0
    _held: dict[int, _Held] = field(default_factory=dict)
    _reads: int = 0

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    __hash__ = object.__hash__

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload) or func.namespace in _HIDDEN_NAMESPACES:
            return func(*args, **kwargs)
        op = func._schema.name.removeprefix("aten::").replace("::", ".")
        if op in VALUE_READS or guesses_shape(op, args):
            self._count_dynamic(op)
        out = answer(func, op, args, kwargs) if self.fake else NotImplemented
        if out is NotImplemented:
            out = func(*args, **kwargs)
        results = tensors_in(out)
        if self.fake:
            remember_parts(op, tensors_in(args, kwargs), results)
        for tensor in results:
            self._hold(tensor)
        if self.recording and not self._is_silent(func, op, args, kwargs, results):
            self._write_down(func, op, args, kwargs, results)
        return out

    def adopt(self, tensors: Iterable[torch.Tensor], *, parameters: bool = False) -> None:
        """Take into account tensors that may have been made elsewhere."""
        for tensor in tensors:
            held = self._hold(tensor)
            held.parameter |= parameters

    def keep_for_backward(self, tensor: torch.Tensor) -> torch.Tensor:
        """Charge a tensor that autograd saves to the kernel that made it, once a storage (a pack hook)."""
        if self.recording and self._phase() == "fwd":
            held = self._hold(tensor)
            if held.writer >= 0 and not held.saved and not held.parameter:
                held.saved = True
                self.kernels[held.writer].saved_activation_bytes += held.nbytes
        return tensor

    def note_guess(self) -> None:
        """Count an operation whose shape was guessed before it came here."""
        self.shape_guesses += self.recording

    def _count_dynamic(self, op: str) -> None:
        self._reads += 1
        if self.fake and self._reads > MAX_READS:
            raise EndlessReadsError(f"more than {MAX_READS} tensor values read on the host")
        if self.recording and not self._in_optimizer():
            self.value_reads += op in VALUE_READS
            self.shape_guesses += op not in VALUE_READS

    def _hold(self, tensor: torch.Tensor) -> _Held:
        storage = storage_of(tensor)
        owner: Any = tensor if storage is None else storage
        key = id(tensor) if storage is None else int(storage._cdata)
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = _Held(0 if storage is None else int(storage.nbytes()))
            self.live_bytes += held.nbytes
            weakref.finalize(owner, self._release, key).atexit = False
        return held

    def _release(self, key: int) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            self.live_bytes -= held.nbytes

    def _is_silent(self, func: Any, op: str, args: Any, kwargs: Any, results: Sequence[torch.Tensor]) -> bool:
        """No kernel: a view, an allocation, a value read (the copy is not on the stream), a host-side counter."""
        if func.is_view or torch.Tag.inplace_view in func.tags or op.startswith(_SILENT) or op in VALUE_READS:
            return True
        inputs = tensors_in(args, kwargs)
        if self._in_optimizer() and inputs and all(t.dim() == 0 for t in inputs):
            return True  # step counters live on the host
        if func._schema.is_mutable:
            return False
        ours = {int(s._cdata) for t in inputs if (s := storage_of(t)) is not None}
        return all((s := storage_of(t)) is not None and int(s._cdata) in ours for t in results)

    def _in_optimizer(self) -> bool:
        return self.stepping > 0 and not torch.is_grad_enabled()

    def _phase(self, written: Iterable[torch.Tensor] = (), inputs: Iterable[torch.Tensor] = ()) -> str:
        if torch._C._current_graph_task_id() != -1:
            return "bwd"
        if self._in_optimizer() or any(self._hold(t).parameter for t in written):
            return "opt"
        if not torch.is_grad_enabled() and any(self._is_gradient(self._hold(t)) for t in inputs):
            return "opt"  # what happens to gradients between backward and the optimizer: clipping, unscaling
        return "fwd"

    def _is_gradient(self, held: _Held) -> bool:
        return held.writer >= 0 and not held.parameter and self.kernels[held.writer].phase != "fwd"

    def _write_down(self, func: Any, op: str, args: Any, kwargs: Any, results: list[torch.Tensor]) -> None:
        changed = mutated(func, args, kwargs)
        written = tensors_in(results, changed)
        inputs = tensors_in(args, kwargs)
        held = [self._hold(t) for t in inputs]
        phase = self._phase(changed, inputs)
        flops, known = flops_of(op, args, out=results[0] if results else None)
        n_read, n_written = traffic(op, args, kwargs, written)
        shown = next((t for t in written if t.is_floating_point()), written[0] if written else None)
        self.kernels.append(
            Kernel(
                op=op,
                op_class=class_of(op, known),
                phase=phase,
                dtype="none" if shown is None else str(shown.dtype).removeprefix("torch."),
                shape=() if shown is None else tuple(int(size) for size in shown.shape),
                attributes=known,
                flops=flops,
                bytes_read=n_read,
                bytes_written=n_written,
                params=sum(t.numel() for t, h in zip(inputs, held, strict=True) if h.parameter),
                live_bytes=self.live_bytes,
                inputs=tuple(sorted({h.writer for h in held if h.writer >= 0})),
            )
        )
        for tensor in written:
            self._hold(tensor).writer = len(self.kernels) - 1


def state_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of distinct tensors."""
    return sum(bytes_of(t) for t in {id(t): t for t in tensors}.values())
