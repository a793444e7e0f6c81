"""From two or three recordings of a step at different batch sizes to costs that are affine in the batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eaco_features.graphs.graph import COST_COLUMNS, Attribute
from eaco_features.sets import FloatArray


@dataclass
class Kernel:
    """One kernel as it was launched; ``inputs`` are positions of kernels in the recording."""

    op: str
    op_class: str
    phase: str
    dtype: str
    shape: tuple[int, ...]
    attributes: Mapping[str, Attribute]
    flops: int
    bytes_read: int
    bytes_written: int
    params: int
    live_bytes: int
    inputs: tuple[int, ...]
    saved_activation_bytes: int = 0

    @property
    def signature(self) -> tuple[str, str, str]:
        """What a kernel keeps when the batch size changes."""
        return self.op, self.phase, self.dtype


@dataclass(frozen=True)
class Fit:
    """Node columns of a graph; ``affine`` is whether the third recording lay exactly on the line (None: unknown)."""

    columns: dict[str, Any]
    affine: bool | None
    note: str = ""


def fit(first: Sequence[Kernel], second: Sequence[Kernel], third: Sequence[Kernel] | None, batch_size: int) -> Fit:
    """Fit the kernels recorded at ``batch_size``, twice and three times it.

    Where the recordings differ in course (a loop over samples), costs are fitted by kind of kernel and shared out
    over the first recording's kernels of that kind, so that totals are right; kinds that come up in the second only
    are lost.
    """
    one, two = _costs(first), _costs(second)
    same_course = [k.signature for k in first] == [k.signature for k in second]
    slope = (two - one if same_course else _shared_out(first, one, second, two)) / batch_size
    intercept = one - slope * batch_size
    columns: dict[str, Any] = {
        name: np.stack([intercept[:, i], slope[:, i]], axis=1) for i, name in enumerate(COST_COLUMNS)
    }
    affine: bool | None = None if same_course else False
    if same_course and third is not None:
        affine = _lies_on_line(third, intercept + 3 * batch_size * slope)
    note = "" if same_course else f"{len(first)} kernels at batch size {batch_size}, {len(second)} at twice that"
    return Fit({**columns, **_constant(first)}, affine, note)


def _shared_out(first: Sequence[Kernel], one: FloatArray, second: Sequence[Kernel], two: FloatArray) -> FloatArray:
    """How much each kernel of the first recording grows ``(n_first, n_columns)``: its share of its kind's growth."""
    kinds = {signature: i for i, signature in enumerate(dict.fromkeys(k.signature for k in first))}
    of_first = np.array([kinds[k.signature] for k in first], dtype=np.int64)
    in_second = np.array([kinds.get(k.signature, -1) for k in second], dtype=np.int64)
    before, after = np.zeros((len(kinds), one.shape[1])), np.zeros((len(kinds), one.shape[1]))
    np.add.at(before, of_first, one)
    np.add.at(after, in_second[in_second >= 0], two[in_second >= 0])
    number = np.bincount(of_first, minlength=len(kinds))[:, None]
    whole = before[of_first]
    share = np.where(whole > 0, one / np.where(whole > 0, whole, 1.0), (1.0 / number)[of_first])
    growth: FloatArray = share * (after - before)[of_first]
    at = COST_COLUMNS.index("live_bytes")
    growth[:, at] = two[:, at].max() - one[:, at].max()
    return growth


def _costs(kernels: Sequence[Kernel]) -> FloatArray:
    values = [[getattr(kernel, name) for name in COST_COLUMNS] for kernel in kernels]
    return np.array(values, dtype=np.float64).reshape(-1, len(COST_COLUMNS))


def _lies_on_line(third: Sequence[Kernel], expected: FloatArray) -> bool:
    return len(third) == len(expected) and bool(np.array_equal(_costs(third), expected))


def _constant(kernels: Sequence[Kernel]) -> dict[str, Any]:
    edges = [(source, target) for target, kernel in enumerate(kernels) for source in kernel.inputs]
    return {
        "op": tuple(k.op for k in kernels),
        "op_class": tuple(k.op_class for k in kernels),
        "phase": tuple(k.phase for k in kernels),
        "dtype": tuple(k.dtype for k in kernels),
        "shape": tuple(k.shape for k in kernels),
        "attributes": tuple(k.attributes for k in kernels),
        "kernels": np.ones(len(kernels), dtype=np.int64),
        "params": np.array([k.params for k in kernels], dtype=np.int64),
        "edges": np.array(edges, dtype=np.int64).reshape(-1, 2),
    }
