"""Bytes that one kernel reads and writes, from the tensors that it is called with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from eaco_features.graphs.dynamic import sparse_parts
from eaco_features.graphs.vocabulary import classify

_GATHERS = frozenset({"gather", "embedding_bag"})
_OVERWRITES = frozenset({"zero_", "fill_", "copy_", "bernoulli_", "uniform_", "normal_", "random_", "exponential_"})
_LIKE = ("_like", "new_zeros", "new_ones", "new_full")


def tensors_in(*values: Any) -> list[torch.Tensor]:
    """The distinct tensors among nested arguments or results, in order."""
    found: dict[int, torch.Tensor] = {}
    for leaf in tree_leaves(values):
        if isinstance(leaf, torch.Tensor):
            found.setdefault(id(leaf), leaf)
    return list(found.values())


def storage_of(tensor: torch.Tensor) -> Any:
    """The tensor's storage; ``None`` of a sparse tensor, which has none of its own."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def bytes_of(tensor: torch.Tensor) -> int:
    """Bytes behind a tensor: its elements, but no more than its storage holds (an expanded one repeats
    them); of a sparse one, its indices and values."""
    storage = storage_of(tensor)
    if storage is None:
        return sum(part.numel() * part.element_size() for part in sparse_parts(tensor))
    return min(tensor.numel() * tensor.element_size(), int(storage.nbytes()))


def mutated(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The arguments that the operation writes to, by its schema."""
    written: list[Any] = []
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written.append(args[i] if i < len(args) else kwargs.get(argument.name))
    return tensors_in(written)


def traffic(op: str, args: Any, kwargs: Any, written: Iterable[torch.Tensor]) -> tuple[int, int]:
    """(bytes read, bytes written) by an operation whose results and changed arguments are ``written``.

    Gathers read the rows that they pick, scatters and sparse updates touch the rows that they are given; filling
    reads nothing.
    """
    out = list(written)
    n_written = sum(bytes_of(t) for t in out)
    kind = classify(op)
    inputs = tensors_in(args, kwargs)
    if op in _OVERWRITES:
        return sum(bytes_of(t) for t in inputs[1:]), n_written
    if kind in ("fill", "random") and (op.endswith(_LIKE[:1]) or op in _LIKE):
        return 0, n_written
    sparse = [t for t in inputs if t.is_sparse]
    if sparse and not inputs[0].is_sparse and (op.endswith("_") or op == "sparse_mask"):
        rows = sum(p.numel() * p.element_size() for t in sparse for p in sparse_parts(t)[1:])
        return sum(bytes_of(t) for t in sparse) + rows, rows
    n_read = sum(bytes_of(t) for t in inputs)
    if op == "embedding" or (kind in _GATHERS and not op.endswith("_backward")):
        return _gathered(op, inputs, out), n_written
    if kind == "scatter" and op.endswith("_") and inputs:
        given = sum(bytes_of(t) for t in inputs[1:])
        values = max((bytes_of(t) for t in inputs[1:] if t.dtype == inputs[0].dtype), default=n_written)
        return given, min(values, n_written)
    return n_read, n_written


def _gathered(op: str, inputs: list[torch.Tensor], out: list[torch.Tensor]) -> int:
    """The rows picked, each time they are picked, and their indices."""
    table, *indices = inputs
    picked = bytes_of(out[0])
    if "embedding_bag" in op and indices:
        picked = indices[0].numel() * table.shape[-1] * table.element_size()
    return picked + sum(bytes_of(t) for t in indices)
