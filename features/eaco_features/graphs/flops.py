"""FLOPs of one kernel (a multiply-add is two), with what is known of its shape.

Only contractions count: convolutions, matrix products, attention and recurrent layers. Everything else is described
by its bytes. A product with a sparse matrix counts its nonzeros only, and nothing where a fake run does not know them.
Products of complex numbers count four times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch

from eaco_features.graphs.dynamic import sparse_parts
from eaco_features.graphs.graph import Attribute
from eaco_features.graphs.vocabulary import classify

Cost = tuple[int, dict[str, Attribute]]
Formula = Callable[[Sequence[Any], Any], Cost]


def _matmul(batch: int, m: int, k: int, n: int) -> Cost:
    shape: dict[str, Attribute] = {"m": m, "k": k, "n": n}
    return 2 * batch * m * k * n, {"batch": batch, **shape} if batch > 1 else shape


def _of_factors(left: int, right: int) -> Formula:
    def formula(args: Sequence[Any], _out: Any) -> Cost:
        a, b = args[left], args[right]
        flops, known = _matmul(prod(a.shape[:-2]), a.shape[-2], a.shape[-1], b.shape[-1])
        for matrix, repeats in ((a, b.shape[-1]), (b, a.shape[-2])):
            if matrix.layout is not torch.strided:
                nonzeros = sum(values.numel() for values in sparse_parts(matrix)[1:])
                flops, known = 2 * nonzeros * repeats, {**known, "nonzeros": nonzeros}
        return flops, known

    return formula


def _trilinear(args: Sequence[Any], _out: Any) -> Cost:
    """Products of three factors, summed: a multiply-add for each element of their common broadcast shape."""
    shapes = []
    for factor, expanded in zip(args[:3], args[3:6], strict=True):
        shape = list(factor.shape)
        for dim in sorted(expanded):
            shape.insert(dim, 1)
        shapes.append(shape)
    return 2 * prod(torch.broadcast_shapes(*shapes)), {}  # type: ignore[no-untyped-call]


def _vectors(left: int, right: int) -> Formula:
    def formula(args: Sequence[Any], _out: Any) -> Cost:
        a, b = args[left].shape, args[right].shape
        return _matmul(1, prod(a[:-1]), a[-1], 1 if len(b) == 1 else b[-1])

    return formula


def _outer(args: Sequence[Any], _out: Any) -> Cost:
    return _matmul(1, args[1].shape[0], 1, args[2].shape[0])


def _convolution(x: Any, weight: Any, out_shape: Sequence[int], transposed: bool, groups: int) -> Cost:
    """Each weight is used once per sample and position: of the output, or of the input when transposed."""
    positions = prod((x.shape if transposed else out_shape)[2:])
    c_in = weight.shape[0] if transposed else weight.shape[1] * groups
    c_out = weight.shape[1] * groups if transposed else weight.shape[0]
    known: dict[str, Attribute] = {
        "in_channels": c_in,
        "out_channels": c_out,
        "kernel": tuple(weight.shape[2:]),
        "groups": groups,
        "transposed": int(transposed),
    }
    return 2 * x.shape[0] * positions * weight.numel(), known


def _convolution_forward(args: Sequence[Any], out: Any) -> Cost:
    x, weight, _, stride, _, dilation, transposed, _, groups = args[:9]
    flops, known = _convolution(x, weight, out.shape, transposed, groups)
    return flops, {**known, "stride": tuple(stride), "dilation": tuple(dilation)}


def _convolution_backward(args: Sequence[Any], _out: Any) -> Cost:
    """Gradients to input and weight do the forward's work each; the mask says which are asked for."""
    grad, x, weight, _, stride, _, dilation, transposed, _, groups, mask = args[:11]
    flops, known = _convolution(x, weight, grad.shape, transposed, groups)
    return flops * (int(mask[0]) + int(mask[1])), {**known, "stride": tuple(stride), "dilation": tuple(dilation)}


def attention_shape(query: Any, key: Any, value: Any) -> tuple[int, int, int, int, int]:
    """(batch x heads, queries, keys, head size of queries, head size of values)."""
    return prod(query.shape[:-2]), query.shape[-2], key.shape[-2], query.shape[-1], value.shape[-1]


def _attention(query: Any, key: Any, value: Any, products: tuple[int, int]) -> Cost:
    batch, rows, keys, d_query, d_value = attention_shape(query, key, value)
    flops = 2 * batch * rows * keys * (products[0] * d_query + products[1] * d_value)
    known: dict[str, Attribute] = {
        "heads": query.shape[-3] if query.dim() > 2 else 1,
        "queries": rows,
        "keys": keys,
        "head_size": d_query,
    }
    return flops, known


def _attention_forward(args: Sequence[Any], _out: Any) -> Cost:
    """Two products: scores = q k', output = p v. A causal mask does not lower the count."""
    return _attention(args[0], args[1], args[2], (1, 1))


def _attention_backward(args: Sequence[Any], _out: Any) -> Cost:
    """Five products, as flash attention does: scores again, then dv, dp, dq, dk (Dao et al. 2022)."""
    return _attention(args[1], args[2], args[3], (3, 2))


def _rnn(data: Any, weights: Sequence[Any], args: Mapping[str, Any], times: int) -> Cost:
    """Each weight matrix multiplies each sample's vector once per time step; backward twice (input and weight)."""
    steps = prod(data.shape[:-1])
    flops = times * 2 * steps * sum(w.numel() for w in weights if w.dim() == 2)
    return flops, {"kind": args["kind"], "layers": args["layers"], "input": data.shape[-1], "hidden": args["hidden"]}


def _rnn_forward(args: Sequence[Any], _out: Any) -> Cost:
    data, states, weights, kind, layers = args[:5]
    return _rnn(data, weights, {"kind": kind, "layers": layers, "hidden": states[0].shape[-1]}, 1)


def _rnn_backward(args: Sequence[Any], _out: Any) -> Cost:
    data, states, weights, kind, layers = args[1:6]
    return _rnn(data, weights, {"kind": kind, "layers": layers, "hidden": states[0].shape[-1]}, 2)


_FORMULAS: dict[str, Formula] = {
    "mm": _of_factors(0, 1),
    "_int_mm": _of_factors(0, 1),
    "_scaled_mm": _of_factors(0, 1),
    "addmm": _of_factors(1, 2),
    "_addmm_activation": _of_factors(1, 2),
    "bmm": _of_factors(0, 1),
    "baddbmm": _of_factors(1, 2),
    "addbmm": _of_factors(1, 2),
    "mv": _vectors(0, 1),
    "addmv": _vectors(1, 2),
    "dot": _vectors(0, 1),
    "vdot": _vectors(0, 1),
    "addr": _outer,
    "_sparse_mm": _of_factors(0, 1),
    "_sparse_addmm": _of_factors(1, 2),
    "_trilinear": _trilinear,
    "convolution": _convolution_forward,
    "convolution_backward": _convolution_backward,
    "eaco.attention": _attention_forward,
    "eaco.attention_backward": _attention_backward,
    "eaco.rnn": _rnn_forward,
    "eaco.rnn_backward": _rnn_backward,
}


def flops_of(op: str, args: Sequence[Any], out: Any) -> Cost:
    """FLOPs and attributes of an operation called with ``args`` (in place or not); (0, {}) for all others."""
    formula = _FORMULAS.get(op) or _FORMULAS.get(op.removesuffix("_"))
    if formula is None:
        return 0, {}
    flops, known = formula(args, out)
    complex_times = 4 if any(isinstance(a, torch.Tensor) and a.is_complex() for a in args) else 1
    return flops * complex_times, known


def class_of(op: str, known: Mapping[str, Attribute]) -> str:
    """The class of an operation with these attributes: products with a sparse matrix are ``sparse``."""
    kind = classify(op)
    if kind == "conv":
        return convolution_class(known)
    return "sparse" if "nonzeros" in known else kind


def convolution_class(known: Mapping[str, Attribute]) -> str:
    """``conv``, ``conv_depthwise`` (a group per input channel) or ``conv_transposed``."""
    if known.get("transposed"):
        return "conv_transposed"
    depthwise = known.get("groups", 1) != 1 and known.get("groups") == known.get("in_channels")
    return "conv_depthwise" if depthwise else "conv"
