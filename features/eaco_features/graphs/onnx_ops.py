"""Operations of ONNX: the class of each, and the FLOPs of those that contract. Neither onnx nor torch here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from eaco_features.graphs.graph import Attribute
from eaco_features.graphs.vocabulary import UNKNOWN

Shape = tuple[int, ...]
Shapes = list[Any]
"""Of a node's inputs, in order: a ``Shape``, or None where unknown or left out."""
Attributes = Mapping[str, Any]
Cost = tuple[int, dict[str, Attribute]]
Formula = Callable[[Attributes, Shapes, Shape], Cost]

_MEMBERS: dict[str, str] = {
    "conv": "Conv ConvInteger QLinearConv DeformConv",
    "conv_transposed": "ConvTranspose",
    "matmul": "Gemm MatMul MatMulInteger QLinearMatMul",
    "batched_matmul": "Einsum",
    "attention": "Attention",
    "rnn": "LSTM GRU RNN",
    "batch_norm": "BatchNormalization",
    "layer_norm": "LayerNormalization RMSNormalization",
    "group_norm": "GroupNormalization InstanceNormalization",
    "softmax": "Softmax LogSoftmax Hardmax",
    "loss": "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss",
    "activation": "Relu LeakyRelu Gelu Elu Selu Celu Sigmoid Tanh HardSigmoid HardSwish PRelu Mish Softplus Softsign"
    " ThresholdedRelu Swish Shrink",
    "pool": "MaxPool AveragePool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool MaxUnpool MaxRoiPool RoiAlign",
    "upsample": "Resize Upsample GridSample DepthToSpace SpaceToDepth",
    "add": "Add Sub Sum",
    "mul": "Mul Div Mod",
    "pointwise_math": "Exp Log Sqrt Pow Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Abs Neg Sign Erf Floor"
    " Ceil Round Clip Max Min Mean Reciprocal",
    "compare": "Equal Less LessOrEqual Greater GreaterOrEqual And Or Not Xor IsNaN IsInf BitwiseAnd BitwiseOr"
    " BitwiseXor BitwiseNot BitShift",
    "select": "Where NonZero Trilu Compress",
    "reduce": "ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceLogSum ReduceLogSumExp ReduceSumSquare"
    " ArgMax ArgMin",
    "norm_reduce": "ReduceL1 ReduceL2 LpNormalization MeanVarianceNormalization LRN",
    "scan": "CumSum CumProd",
    "sort": "TopK Unique NonMaxSuppression",
    "gather": "Gather GatherElements GatherND",
    "scatter": "Scatter ScatterElements ScatterND TensorScatter",
    "concat": "Concat",
    "pad": "Pad CenterCropPad",
    "copy": "Transpose Slice Split Expand Tile Im2Col Col2Im ReverseSequence",
    "cast": "Cast CastLike QuantizeLinear DequantizeLinear DynamicQuantizeLinear",
    "fill": "ConstantOfShape Range EyeLike OneHot",
    "random": "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial",
    "fft": "DFT STFT",
    "linalg": "Det",
}
_CLASS_OF = {member: kind for kind, members in _MEMBERS.items() for member in members.split()}


def onnx_class(op: str) -> str:
    """The class of an operation of the standard domain; what is not listed is ``unknown``."""
    return _CLASS_OF.get(op, UNKNOWN)


def onnx_flops(op: str, attributes: Attributes, given: Shapes, out: Shape) -> Cost:
    """FLOPs (a multiply-add is two) and sizes of a contraction; (0, {}) for all else.

    Raises:
        ValueError: the shapes are not known, or do not fit.
    """
    formula = _FORMULAS.get(op)
    if formula is None:
        return 0, {}
    try:
        return formula(attributes, given, out)
    except (TypeError, IndexError, KeyError, AttributeError) as error:
        raise ValueError(f"{op} of shapes {given}") from error


def _convolution(weight_at: int, transposed: bool = False) -> Formula:
    """Each weight is used once per sample and position: of the output, or of the input when transposed."""

    def formula(attributes: Attributes, given: Shapes, out: Shape) -> Cost:
        x, weight = given[0], given[weight_at]
        groups = attributes.get("group", 1)
        positions = (x if transposed else out)[2:]
        spatial = len(x) - 2
        if len(positions) != spatial:
            raise ValueError("no output shape")
        known: dict[str, Attribute] = {
            "in_channels": x[1],
            "out_channels": weight[1] * groups if transposed else weight[0],
            "kernel": tuple(weight[2:]),
            "groups": groups,
            "transposed": int(transposed),
            "stride": tuple(attributes.get("strides", [1] * spatial)),
            "dilation": tuple(attributes.get("dilations", [1] * spatial)),
        }
        return 2 * x[0] * prod(positions) * prod(weight), known

    return formula


def _gemm(attributes: Attributes, given: Shapes, _out: Shape) -> Cost:
    a = given[0][::-1] if attributes.get("transA", 0) else given[0]
    b = given[1][::-1] if attributes.get("transB", 0) else given[1]
    return 2 * a[0] * a[1] * b[1], {"m": a[0], "k": a[1], "n": b[1]}


def _matmul(right_at: int) -> Formula:
    """As numpy multiplies: leading dimensions broadcast, and fold into the rows when the right factor has none."""

    def formula(_attributes: Attributes, given: Shapes, _out: Shape) -> Cost:
        a, b = given[0], given[right_at]
        a = a if len(a) > 1 else (1, *a)
        b = b if len(b) > 1 else (*b, 1)
        if a[-1] != b[-2]:
            raise ValueError("inner sizes differ")
        batch = prod(np.broadcast_shapes(a[:-2], b[:-2]))
        m, k, n = a[-2], a[-1], b[-1]
        if len(b) == 2:
            batch, m = 1, batch * m
        known: dict[str, Attribute] = {"m": m, "k": k, "n": n}
        return 2 * batch * m * k * n, {"batch": batch, **known} if len(b) > 2 else known

    return formula


def _einsum(attributes: Attributes, given: Shapes, _out: Shape) -> Cost:
    """Two factors with a summed index: two FLOPs per combination of all indices."""
    equation = attributes.get("equation", b"").decode().replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if "." in equation or len(terms) > 2 or not arrow:
        raise ValueError("equation")
    size = {letter: n for term, shape in zip(terms, given, strict=True) for letter, n in zip(term, shape, strict=True)}
    contracts = len(terms) == 2 and set(size) != set(result)
    return (2 * prod(size.values()) if contracts else 0), {}


def _attention(attributes: Attributes, given: Shapes, _out: Shape) -> Cost:
    """Two products: scores = q k', output = p v, over past keys too. A causal mask does not lower the count."""

    def split(shape: Shape, heads: str) -> Shape:
        if len(shape) == 4:
            return shape
        n = attributes[heads]
        return shape[0], n, shape[1], shape[2] // n

    query, key = split(given[0], "q_num_heads"), split(given[1], "kv_num_heads")
    value = split(given[2], "kv_num_heads")
    past = given[4][2] if len(given) > 4 and given[4] is not None else 0
    keys = key[2] + past
    known: dict[str, Attribute] = {"heads": query[1], "queries": query[2], "keys": keys, "head_size": query[3]}
    return 2 * query[0] * query[1] * query[2] * keys * (query[3] + value[3]), known


def _recurrent(kind: str) -> Formula:
    """Each weight multiplies each sample's vector once per time step, both ways where the layer runs both ways."""

    def formula(_attributes: Attributes, given: Shapes, _out: Shape) -> Cost:
        x, weights, recurrence = given[:3]
        known: dict[str, Attribute] = {"kind": kind, "layers": 1, "input": x[2], "hidden": recurrence[2]}
        return 2 * x[0] * x[1] * (prod(weights) + prod(recurrence)), known

    return formula


_FORMULAS: dict[str, Formula] = {
    "Conv": _convolution(1),
    "ConvInteger": _convolution(1),
    "DeformConv": _convolution(1),
    "QLinearConv": _convolution(3),
    "ConvTranspose": _convolution(1, transposed=True),
    "Gemm": _gemm,
    "MatMul": _matmul(1),
    "MatMulInteger": _matmul(1),
    "QLinearMatMul": _matmul(3),
    "Einsum": _einsum,
    "Attention": _attention,
    "LSTM": _recurrent("lstm"),
    "GRU": _recurrent("gru"),
    "RNN": _recurrent("rnn"),
}
