"""Reads an ONNX file as a graph of the forward pass alone. The only module that knows onnx; no torch here.

Nodes of the file are kernels, save views (a reshape) and what depends on no input (computed once, before the first
step). Weights are never looked at: of a model with external data the main file is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from eaco_datasets.errors import DataError, InputError, MissingExtraError, UnknownNameError
from eaco_features.graphs.fit import Kernel, fit
from eaco_features.graphs.graph import Attribute, ModelGraph, Recording
from eaco_features.graphs.onnx_ops import Cost, Shape, onnx_class, onnx_flops
from eaco_features.graphs.vocabulary import UNKNOWN

_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"})
_HOST = frozenset({"Constant", "Shape", "Size"})
_STANDARD = frozenset({"", "ai.onnx"})

_SHAPE_MATHS = (
    *("Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Neg", "Cast", "Gather", "Slice", "Concat", "Unsqueeze"),
    *("Squeeze", "Reshape", "Identity", "Equal", "Where", "Expand", "ConstantOfShape", "ReduceProd"),
)

_KEPT_ELEMENTS = 1024
"""Larger tensors lose their values before shapes are inferred: none of them is a shape."""

_MOST_ELEMENTS = 2**53


@dataclass(frozen=True)
class _Value:
    """A tensor's shape, element type and size; ``root`` is the value whose memory it shows."""

    name: str
    shape: Shape
    dtype: str
    nbytes: int
    root: str

    @property
    def numel(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class _Step:
    """A node and the values that it reads and writes, without those left out."""

    node: Any
    reads: list[str]
    writes: list[str]


@dataclass(frozen=True)
class _Kept:
    """What is in memory before the first and after the last kernel; ``where`` names the file."""

    where: str
    inputs: set[str]
    outputs: set[str]


@dataclass
class _Pass:
    """One walk through the file's nodes at one batch size; ``carriers`` are weights and what is made of them alone."""

    kernels: list[Kernel] = field(default_factory=list)
    weights: dict[str, _Value] = field(default_factory=dict)
    buffers: dict[str, _Value] = field(default_factory=dict)
    carriers: set[str] = field(default_factory=set)
    shapeless: list[str] = field(default_factory=list)


def import_onnx(
    path: str | Path, *, batch_size: int = 32, name: str = "", sizes: Mapping[str, int] | None = None
) -> ModelGraph:
    """The forward pass in an ONNX file, affine in its one symbolic dimension, which is the batch size.

    A file without a symbolic dimension has the costs of its own batch size (the leading dimension of its first input)
    whatever batch size is asked for; ``recording.affine`` is then False, and a note says so.

    Args:
        batch_size: where costs are anchored; not used when the file fixes it.
        name: the graph's; the file's unless given.
        sizes: of symbolic dimensions that are not the batch size. One without a name is called ``input[axis]``.

    Raises:
        InputError: the file cannot be read, holds control flow, does not fit together at a batch size, has a product
            of unknown shape, or more than one symbolic dimension without a size.
        DataError: it is no ONNX model.
        MissingExtraError: onnx is not installed.
    """
    path = Path(path)
    if batch_size < 1:
        raise InputError(f"batch size {batch_size}", where="batch_size", expected="1 or more")
    if find_spec("onnx") is None:
        raise MissingExtraError("onnx", "onnx")
    model, constants = _load(path)
    batch = _settle_dimensions(model, dict(sizes or {}), str(path))
    if batch:
        one, two, three = (_walk(model, constants, {batch: n * batch_size}, str(path)) for n in (1, 2, 3))
        fitted = fit(one.kernels, two.kernels, three.kernels, batch_size)
        affine, samples = fitted.affine, (0.0, 1.0)
        notes = []
    else:
        one = _walk(model, constants, {}, str(path))
        batch_size, first = _leading_dimension(model, str(path))
        fitted = fit(one.kernels, one.kernels, None, batch_size)
        affine, samples = False, (float(batch_size), 0.0)
        notes = [f"the file fixes the batch size ({batch_size}, leading in {first!r}): costs are those at any other"]
    if not one.kernels:
        raise InputError("no node depends on an input", where=str(path), expected="a model that computes something")
    notes += _remarks(one)
    return ModelGraph(
        name=name or path.stem,
        recording=Recording(
            batch_size=batch_size,
            mode="onnx",
            samples=samples,
            parameter_count=sum(w.numel for w in one.weights.values()),
            parameter_bytes=sum(w.nbytes for w in one.weights.values()),
            buffer_bytes=sum(b.nbytes for b in one.buffers.values()),
            shape_guesses=len(one.shapeless),
            affine=affine,
            notes=tuple(notes),
        ),
        **fitted.columns,
    )


def _load(path: Path) -> tuple[Any, set[str]]:
    """The model with local functions inlined, constants as initializers, and without large values; the constants."""
    import onnx
    from google.protobuf.message import DecodeError
    from onnx.inliner import inline_local_functions

    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except OSError as error:
        raise InputError(error.strerror or str(error), where=str(path), expected="an ONNX file") from error
    except DecodeError as error:
        raise DataError("not an ONNX file, or cut short", where=str(path), expected="a binary ONNX model") from error
    if not model.graph.node or not model.opset_import:
        raise DataError("no ONNX graph in it", where=str(path), expected="a binary ONNX model")
    if model.graph.sparse_initializer:
        raise InputError("sparse initializers", where=str(path), expected="dense ones")
    if model.functions:
        model = inline_local_functions(model)
    constants = _keep_constants(model, str(path))
    for tensor in model.graph.initializer:
        if _elements(tensor.dims, f"{path}:{tensor.name}") > _KEPT_ELEMENTS:
            for values, _ in tensor.ListFields():
                if values.name.endswith("_data"):
                    tensor.ClearField(values.name)
    return model, constants


def _keep_constants(model: Any, where: str) -> set[str]:
    """Turn constant nodes into initializers, and name them: a scale or a mask, not trained. Refuse control flow."""
    import onnx

    nodes = list(model.graph.node)
    constants = set()
    del model.graph.node[:]
    for node in nodes:
        if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute):
            raise InputError(
                f"control flow ({node.op_type}) depends on data",
                where=f"{where}:{_called(node)}",
                expected="plain nodes",
            )
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        if node.op_type == "Constant" and value is not None:
            value.name = node.output[0]
            model.graph.initializer.append(value)
            constants.add(value.name)
        else:
            model.graph.node.append(node)
    return constants


def _settle_dimensions(model: Any, sizes: dict[str, int], where: str) -> str:
    """Give every symbolic dimension of the inputs a name, or its size; returns the one left ("": none)."""
    known: dict[str, Any] = {}
    for one in _inputs(model):
        kind = one.type.tensor_type
        if not kind.HasField("shape"):
            raise InputError("an input without a shape", where=f"{where}:{one.name}", expected="its dimensions")
        for axis, dim in enumerate(kind.shape.dim):
            if not dim.HasField("dim_value"):
                dim.dim_param = dim.dim_param or f"{one.name}[{axis}]"
                known[dim.dim_param] = None
    for name, size in sizes.items():
        if name not in known:
            raise UnknownNameError("symbolic dimension", name, known, where=where)
        if size < 1:
            raise InputError(f"size {size}", where=name, expected="1 or more")
    left = [name for name in known if name not in sizes]
    if len(left) > 1:
        raise InputError(
            f"symbolic dimensions without a size: {', '.join(left)}",
            where=where,
            expected="a size (--dim NAME=SIZE) for all but the batch size",
        )
    _substitute(model, sizes)
    return left[0] if left else ""


def _inputs(model: Any) -> list[Any]:
    weights = {tensor.name for tensor in model.graph.initializer}
    return [one for one in model.graph.input if one.name not in weights]


def _leading_dimension(model: Any, where: str) -> tuple[int, str]:
    for one in _inputs(model):
        dims = one.type.tensor_type.shape.dim
        if dims and dims[0].dim_value > 0:
            return int(dims[0].dim_value), one.name
    raise InputError("no input has a dimension", where=where, expected="a batch to run on")


def _substitute(model: Any, sizes: Mapping[str, int]) -> None:
    for one in (*model.graph.input, *model.graph.value_info):
        for dim in one.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]


def _walk(model: Any, constants: set[str], sizes: Mapping[str, int], where: str) -> _Pass:
    """Every node in order, with shapes at these sizes."""
    values = _infer(model, sizes, where)
    graph = model.graph
    sources = {tensor.name: {tensor.name} for tensor in graph.initializer}
    defined = {*sources, *(one.name for one in graph.input)}
    untrained = constants.union(*(node.input[3:5] for node in graph.node if node.op_type == "BatchNormalization"))
    steps: list[_Step] = []
    found = _Pass()
    for node in graph.node:
        step = _Step(node, [n for n in node.input if n], [n for n in node.output if n])
        if missing := [n for n in step.reads if n not in defined]:
            raise DataError(f"{missing[0]!r} is read before it is made", where=f"{where}:{_called(node)}")
        defined.update(step.writes)
        stored = set().union(*(sources.get(n, ()) for n in step.reads))
        if _is_constant(step, sources):
            sources.update((name, stored) for name in step.writes)
            continue
        for name in stored:
            kept = found.buffers if name in untrained or not _is_weight(values[name]) else found.weights
            kept[name] = values[name]
        if node.op_type in _VIEWS and node.domain in _STANDARD:
            if step.writes[0] in values and step.reads[0] in values:
                values[step.writes[0]] = replace(values[step.writes[0]], root=values[step.reads[0]].root)
            continue
        steps.append(step)
    found.shapeless = [n for step in steps for n in step.writes if n not in values]
    found.carriers = {name for name, stored in sources.items() if stored & found.weights.keys()}
    _launch(steps, values, found, _Kept(where, {one.name for one in _inputs(model)}, {o.name for o in graph.output}))
    return found


def _is_constant(step: _Step, sources: Mapping[str, set[str]]) -> bool:
    """Known before any input is: a runtime computes it once, when it loads the file."""
    if step.node.op_type in _HOST and step.node.domain in _STANDARD:
        return True
    return bool(step.reads) and all(n in sources for n in step.reads) and _class(step.node) != "random"


def _launch(steps: Sequence[_Step], values: Mapping[str, _Value], found: _Pass, ends: _Kept) -> None:
    """Append a kernel a step. Weights, inputs and outputs stay in memory; all else goes after its last reader."""
    last = {values[n].root: i for i, step in enumerate(steps) for n in step.reads if n in values}
    last.update((values[n].root, len(steps)) for n in (*ends.inputs, *ends.outputs) if n in values)
    writer: dict[str, int] = {}
    held = {name: values[name].nbytes for name in ends.inputs if name in values}
    base = sum(v.nbytes for v in (*found.weights.values(), *found.buffers.values()))
    for i, step in enumerate(steps):
        node = step.node
        used = [values[n] for n in dict.fromkeys(step.reads) if n in values]
        made = [values[n] for n in step.writes if n in values]
        held.update((v.root, v.nbytes) for v in made)
        flops, known = _flops(node, values, ends.where)
        shown = next((v for v in made if "float" in v.dtype), made[0] if made else None)
        found.kernels.append(
            Kernel(
                phase="fwd",
                op=f"{'onnx' if node.domain in _STANDARD else node.domain}.{node.op_type}",
                op_class=_class(node, known, values),
                dtype="none" if shown is None else shown.dtype,
                shape=() if shown is None else shown.shape,
                attributes=known,
                flops=flops,
                bytes_read=_bytes_read(node, used, made),
                bytes_written=sum(v.nbytes for v in made),
                params=sum(v.numel for v in used if v.name in found.carriers),
                live_bytes=base + sum(held.values()),
                inputs=tuple(sorted({writer[v.root] for v in used if v.root in writer})),
            )
        )
        writer.update((v.root, i) for v in made)
        for value in (*used, *made):
            if last.get(value.root, i) <= i:
                held.pop(value.root, None)


def _infer(model: Any, sizes: Mapping[str, int], where: str) -> dict[str, _Value]:
    """Every tensor whose shape is known, by name."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    foreign = {name for node in copy.graph.node if node.domain not in _STANDARD for name in node.output}
    said = [one for one in copy.graph.value_info if one.name in foreign]
    del copy.graph.value_info[:]
    copy.graph.value_info.extend(said)
    _substitute(copy, sizes)
    for one in copy.graph.output:
        if one.name not in foreign:
            one.type.tensor_type.ClearField("shape")
    try:
        inferred = onnx.shape_inference.infer_shapes(copy, strict_mode=True, data_prop=True)
        while _fold_shapes(copy, inferred.graph):
            inferred = onnx.shape_inference.infer_shapes(copy, strict_mode=True, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        at = "".join(f" at {name} = {size}" for name, size in sizes.items())
        said_by_onnx = " ".join(str(error).split())[:200]
        raise InputError(
            f"shapes do not fit together{at}: {said_by_onnx}", where=where, expected="a model that runs at that size"
        ) from error
    inferred = inferred.graph
    values = {t.name: _value(t.name, t.data_type, t.dims, where) for t in inferred.initializer}
    for one in (*inferred.input, *inferred.value_info, *inferred.output):
        kind = one.type.tensor_type
        dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim]
        if kind.HasField("shape") and kind.elem_type and -1 not in dims and one.name not in values:
            values[one.name] = _value(one.name, kind.elem_type, dims, where)
    return values


def _fold_shapes(model: Any, inferred: Any) -> bool:
    """Compute what is made of known shapes and small whole numbers alone; whether there was any.

    A node so computed becomes an initializer. onnx's own data propagation knows a part of these operations only.
    """
    import onnx

    known = {
        one.name: onnx.numpy_helper.to_array(one)
        for one in model.graph.initializer
        if one.data_type in (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL)
        and prod(one.dims) <= _KEPT_ELEMENTS
        and one.data_location != onnx.TensorProto.EXTERNAL
    }
    shapes = {one.name: one.type.tensor_type.shape.dim for one in (*inferred.input, *inferred.value_info)}
    left, computed = [], []
    for node in model.graph.node:
        found = None
        if node.op_type == "Shape" and all(dim.HasField("dim_value") for dim in shapes.get(node.input[0], [None])):
            first, end = _attribute(node, "start", 0), _attribute(node, "end", None)
            found = np.array([dim.dim_value for dim in shapes[node.input[0]]], dtype=np.int64)[first:end]
        elif node.op_type in _SHAPE_MATHS and node.domain in _STANDARD and all(n in known for n in node.input if n):
            found = _evaluated(model, node, known)
        if found is None:
            left.append(node)
        else:
            known[node.output[0]] = found
            computed.append(onnx.numpy_helper.from_array(found, node.output[0]))
    if computed:
        del model.graph.node[:]
        model.graph.node.extend(left)
        model.graph.initializer.extend(computed)
    return bool(computed)


def _evaluated(model: Any, node: Any, known: Mapping[str, Any]) -> Any:
    """The node's one output, when it is of whole numbers and small; else None."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    if len(node.output) != 1 or (
        node.op_type in ("Expand", "ConstantOfShape") and prod(known[node.input[-1]].tolist()) > _KEPT_ELEMENTS
    ):
        return None
    given = {name: known[name] for name in node.input if name}
    types = {name: onnx.helper.np_dtype_to_tensor_dtype(value.dtype) for name, value in given.items()}
    inputs = [onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in types.items()]
    outputs = [onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.INT64, None)]
    graph = onnx.helper.make_graph([node], "shape", inputs, outputs)
    try:
        one = onnx.helper.make_model(graph, opset_imports=model.opset_import)
        found = np.asarray(ReferenceEvaluator(one).run(None, given)[0])
    except Exception:  # whatever a bad node makes of its numbers: its shape stays unknown
        return None
    return found if found.dtype.kind in "ib" and found.size <= _KEPT_ELEMENTS else None


def _value(name: str, element: int, dims: Iterable[int], where: str) -> _Value:
    import onnx

    shape = tuple(int(d) for d in dims)
    n = _elements(shape, f"{where}:{name}")
    try:
        word = onnx.TensorProto.DataType.Name(element)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
    except (ValueError, KeyError) as error:
        raise DataError(f"element type {element}", where=f"{where}:{name}", expected="a type of ONNX") from error
    bits = next((b for end, b in (("INT4", 4), ("E2M1", 4), ("INT2", 2)) if word.endswith(end)), 8 * dtype.itemsize)
    return _Value(name, shape, str(dtype.name), -(-n * bits // 8), name)


def _elements(dims: Iterable[int], where: str) -> int:
    shape = list(dims)
    if any(d < 0 for d in shape) or prod(shape) > _MOST_ELEMENTS:
        raise DataError(f"shape {shape}", where=where, expected=f"sizes from 0, at most {_MOST_ELEMENTS} elements")
    return prod(shape)


def _is_weight(value: _Value) -> bool:
    """Floating-point or 8-bit and narrower, and no scalar: not a shape, an index or an epsilon."""
    return bool(value.shape) and value.dtype not in ("int64", "int32", "int16", "uint16", "uint32", "uint64", "bool")


def _bytes_read(node: Any, used: Sequence[_Value], made: Sequence[_Value]) -> int:
    """Gathers read the rows that they pick and their indices; filling and drawing read nothing."""
    kind = _class(node)
    if kind in ("fill", "random"):
        return 0
    if kind == "gather":
        return sum(v.nbytes for v in (*made, *used[1:]))
    return sum(v.nbytes for v in used)


def _class(node: Any, known: Mapping[str, Attribute] | None = None, values: Mapping[str, _Value] | None = None) -> str:
    """The node's operation class; with its attributes and shapes, the finer one."""
    kind = onnx_class(node.op_type) if node.domain in _STANDARD else UNKNOWN
    known, values = known or {}, values or {}
    if kind == "conv" and known.get("groups", 1) != 1 and known["groups"] == known["in_channels"]:
        return "conv_depthwise"
    if kind == "matmul" and "batch" in known:
        return "batched_matmul"
    table = values.get(node.input[0]) if node.op_type == "Gather" else None
    if table is not None and "float" in table.dtype and len(table.shape) == 2 and not _attribute(node, "axis", 0):
        return "embedding"
    return kind


def _remarks(walk: _Pass) -> list[str]:
    strange = sorted({k.op for k in walk.kernels if k.op_class == UNKNOWN})
    return [
        *([f"unknown operations, described by their bytes alone: {', '.join(strange[:8])}"] if strange else []),
        *(
            [f"{len(walk.shapeless)} values of unknown shape count as 0 bytes, the first {walk.shapeless[0]!r}"]
            if walk.shapeless
            else []
        ),
    ]


def _called(node: Any) -> str:
    return str(node.name or (node.output[0] if node.output else "") or node.op_type)


def _attribute(node: Any, name: str, default: Any) -> Any:
    import onnx

    return next((onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def _flops(node: Any, values: Mapping[str, _Value], where: str) -> Cost:
    if node.domain not in _STANDARD:
        return 0, {}
    import onnx

    given = [values[n].shape if n in values else None for n in node.input]
    out = values[node.output[0]].shape if node.output[0] in values else ()
    try:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if not a.ref_attr_name}
        return onnx_flops(node.op_type, attributes, given, out)
    except ValueError as error:
        raise InputError(
            f"{node.op_type} of shapes {given} cannot be counted",
            where=f"{where}:{_called(node)}",
            expected="shapes that can be inferred and fit together",
        ) from error
