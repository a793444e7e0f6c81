"""Answers for operations whose outcome depends on data that a fake tensor does not have.

A value read on the host is a constant (1, or False); an output whose size depends on data takes its largest size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

VALUE_READS = frozenset({"_local_scalar_dense", "equal", "is_nonzero"})
"""Operations that bring a value to the host."""

_Answer = Callable[..., Any]


def read_value(tensor: Any) -> Any:
    """What ``.item()`` answers: 1 in the tensor's type; False of a Boolean, as guards against NaN mostly expect."""
    if tensor.dtype == torch.bool:
        return False
    if tensor.is_complex():
        return complex(1.0)
    return 1.0 if tensor.is_floating_point() else 1


def _nonzero(x: Any) -> Any:
    return x.new_empty((x.numel(), x.dim()), dtype=torch.int64)


def _masked_select(x: Any, mask: Any) -> Any:
    whole: Any = torch.broadcast_shapes(x.shape, mask.shape)  # type: ignore[no-untyped-call]
    return x.new_empty((prod(whole),))


def _unique(x: Any, *_: Any, **__: Any) -> tuple[Any, Any, Any]:
    count = x.numel()
    longs = {"dtype": torch.int64}
    return x.new_empty((count,)), x.new_empty(x.shape, **longs), x.new_empty((count,), **longs)


def _unique_dim(x: Any, dim: int, *_: Any, **__: Any) -> tuple[Any, Any, Any]:
    longs = {"dtype": torch.int64}
    return x.new_empty(x.shape), x.new_empty((x.shape[dim],), **longs), x.new_empty((x.shape[dim],), **longs)


def _repeat_interleave(repeats: Any, *, output_size: int | None = None) -> Any:
    return repeats.new_empty((repeats.numel() if output_size is None else output_size,), dtype=torch.int64)


def _bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    dtype = torch.int64 if weights is None else torch.float64
    return x.new_empty((max(minlength, 1 if minlength else x.numel()),), dtype=dtype)


def _ctc(log_probs: Any, targets: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
    steps, batch = log_probs.shape[0], log_probs.shape[1]
    longest = targets.shape[1] if targets.dim() == 2 else -(-targets.numel() // batch)
    return log_probs.new_empty((batch,)), log_probs.new_empty((batch, steps, 2 * longest + 1))


def _ctc_backward(_grad: Any, log_probs: Any, *_: Any, **__: Any) -> Any:
    return log_probs.new_empty(log_probs.shape)


_SHAPES: dict[str, _Answer] = {
    "nonzero": _nonzero,
    "masked_select": _masked_select,
    "_unique2": _unique,
    "unique_consecutive": _unique,
    "unique_dim": _unique_dim,
    "repeat_interleave": _repeat_interleave,
    "bincount": _bincount,
    "_coalesce": torch.clone,
    "_ctc_loss": _ctc,
    "_ctc_loss_backward": _ctc_backward,
}
_STATIC = frozenset({"_ctc_loss", "_ctc_loss_backward"})
_CONSTANT = {"equal": True, "is_coalesced": False}
_PARTS, _PARTS_OF = "_eaco_parts", frozenset({"_indices", "indices", "_values", "values", "_nnz"})
_INDEXED = frozenset({"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"})


def has_masks(args: Sequence[Any]) -> bool:
    """Whether an indexing operation's second argument holds a Boolean mask."""
    return any(isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1])


def guesses_shape(op: str, args: Sequence[Any]) -> bool:
    """Whether the size of the operation's output depends on data."""
    if op in _INDEXED:
        return op in ("index", "_unsafe_index") and has_masks(args)
    if op == "repeat_interleave":
        return len(args) == 1 and isinstance(args[0], torch.Tensor)
    return op in _SHAPES and op not in _STATIC


def _as_positions(index: Any) -> list[Any]:
    if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
        return [index.new_empty((index.numel(),), dtype=torch.int64) for _ in range(index.dim())]
    return [index]


class SparseFakeError(RuntimeError):
    """A look inside a fake sparse tensor of unknown parts: it would look empty, and optimizers would skip it."""


def remember_parts(op: str, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
    """Note on fake sparse results the indices and values that they are made of: torch takes them to be empty."""
    for tensor in results:
        if tensor.is_sparse and not hasattr(tensor, _PARTS):
            sparse = [t for t in inputs if t.is_sparse]
            parts = getattr(sparse[0], _PARTS, None) if sparse else tuple(inputs)
            if op == "_embedding_bag_backward":
                rows = inputs[1].numel()
                parts = inputs[1].new_empty((1, rows)), inputs[0].new_empty((rows, tensor.shape[1]))
            if parts is not None and len(parts) == 2:
                setattr(tensor, _PARTS, parts)


def sparse_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Indices and values of a sparse tensor, real or fake; nothing where they are unknown."""
    if hasattr(tensor, _PARTS):
        return tuple(getattr(tensor, _PARTS))
    if isinstance(tensor, FakeTensor) or tensor.layout is torch.strided:
        return ()
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
    return (tensor.col_indices() if by_row else tensor.row_indices()), tensor.values()


def _part(op: str, tensor: torch.Tensor) -> Any:
    parts = sparse_parts(tensor)
    if not parts:
        raise SparseFakeError(f"{op} of a sparse tensor whose parts are unknown")
    return parts[1].shape[0] if op == "_nnz" else parts["values" in op]


def answer(func: Any, op: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The outcome of an operation on fake tensors; ``NotImplemented`` where the operation needs no help."""
    if op == "_local_scalar_dense":
        known = getattr(args[0], "constant", None)
        return NotImplemented if known is not None else read_value(args[0])
    if op in _CONSTANT:
        return _CONSTANT[op]
    if op in _INDEXED and has_masks(args):
        positions = [p for index in args[1] for p in _as_positions(index)]
        return func(args[0], positions, *args[2:], **kwargs)
    if op in _PARTS_OF and args[0].is_sparse:
        return _part(op, args[0])
    if op in _SHAPES and (op != "repeat_interleave" or guesses_shape(op, args)):
        return _SHAPES[op](*args, **kwargs)
    return NotImplemented
