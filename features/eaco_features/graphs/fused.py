"""Attention and recurrent layers as one kernel each way, as CUDA runs them.

Each is a ``torch.library`` custom operation with a fake (shapes only), a real kernel and an autograd formula, so that
both a fake and a real run show the same stream. ``fused_kernels()`` puts them in place of ATen's composites for as
long as it is entered.
"""

# ruff: noqa: PLR0917, ARG001 - the signatures are the operations' schemas
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor


def _attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention and the log of its normaliser, by plain products."""
    repeats = query.shape[-3] // key.shape[-3] if query.dim() > 2 else 1
    if repeats > 1:
        key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
    scores = query.float() @ key.float().transpose(-2, -1) * scale
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    return (scores.softmax(-1) @ value.float()).to(query.dtype), scores.logsumexp(-1)


def _anew(work: Callable[[], Any]) -> Any:
    """What ``work`` returns when autograd and dispatch modes are as in a new thread: a kernel runs below both."""
    box: list[Any] = []
    faults: list[BaseException] = []

    def body() -> None:
        try:
            box.append(work())
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if faults:
        raise faults[0]
    return box[0]


def _gradients(run: Callable[[list[Tensor]], list[Tensor]], inputs: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
    def work() -> list[Tensor]:
        leaves = [t.detach().requires_grad_() for t in inputs]
        with torch.enable_grad():
            outputs = run(leaves)
        found = torch.autograd.grad(outputs, leaves, grads, allow_unused=True)
        return [
            torch.zeros_like(t) if g is None else g.to(t.dtype).contiguous() for t, g in zip(inputs, found, strict=True)
        ]

    result: list[Tensor] = _anew(work)
    return result


def _define_attention() -> None:
    @torch.library.custom_op("eaco::attention", mutates_args=())
    def attention(
        query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        out, normaliser = _attend(query, key, value, mask, causal, scale)
        return out.contiguous(), normaliser.contiguous()

    @attention.register_fake
    def _(query: Any, key: Any, value: Any, mask: Any, causal: bool, scale: float) -> tuple[Any, Any]:
        shape = query.shape[:-1]
        return query.new_empty((*shape, value.shape[-1])), query.new_empty(shape, dtype=torch.float32)

    @torch.library.custom_op("eaco::attention_backward", mutates_args=())
    def attention_backward(
        grad: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        out: Tensor,
        normaliser: Tensor,
        causal: bool,
        scale: float,
        bias_grad: bool,
    ) -> list[Tensor]:
        inputs = [query, key, value] + ([mask] if bias_grad and mask is not None else [])

        def run(leaves: list[Tensor]) -> list[Tensor]:
            bias = leaves[3] if bias_grad else mask
            return [_attend(leaves[0], leaves[1], leaves[2], bias, causal, scale)[0]]

        return _gradients(run, inputs, [grad])

    @attention_backward.register_fake
    def _(grad: Any, query: Any, key: Any, value: Any, mask: Any, *rest: Any) -> list[Any]:
        inputs = [query, key, value] + ([mask] if rest[-1] else [])
        return [t.new_empty(t.shape) for t in inputs]

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        query, key, value, mask, ctx.causal, ctx.scale = inputs
        ctx.bias_grad = mask is not None and mask.requires_grad
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(query, key, value, mask, *output)
        ctx.mark_non_differentiable(output[1])

    def backward(ctx: Any, grad: Any, _normaliser: Any) -> Any:
        if grad is None:
            return (None,) * 6
        query, key, value, mask, out, normaliser = ctx.saved_tensors
        found = torch.ops.eaco.attention_backward(
            grad.contiguous(), query, key, value, mask, out, normaliser, ctx.causal, ctx.scale, ctx.bias_grad
        )
        return found[0], found[1], found[2], found[3] if ctx.bias_grad else None, None, None

    attention.register_autograd(backward, setup_context=keep)


_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def _recur(
    data: Tensor,
    states: list[Tensor],
    weights: list[Tensor],
    kind: str,
    layers: int,
    biases: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[Tensor]:
    function = getattr(torch.ops.aten, kind).input  # decompose goes past what fused_kernels put in its place
    hidden = states if kind == "lstm" else states[0]
    return list(function.decompose(data, hidden, weights, biases, layers, 0.0, True, bidirectional, batch_first))


def _define_rnn() -> None:
    @torch.library.custom_op("eaco::rnn", mutates_args=())
    def rnn(
        data: Tensor,
        states: list[Tensor],
        weights: list[Tensor],
        kind: str,
        layers: int,
        biases: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> list[Tensor]:
        found = _recur(data, states, weights, kind, layers, biases, bidirectional, batch_first)
        return [t.detach().clone() for t in found] + [data.new_empty(_reserve(data, states, weights))]

    @rnn.register_fake
    def _(data: Any, states: Any, weights: Any, kind: str, layers: int, *rest: Any) -> list[Any]:
        width = states[0].shape[-1] * (2 if rest[1] else 1)
        outputs = [data.new_empty((*data.shape[:-1], width))] + [s.new_empty(s.shape) for s in states]
        return [*outputs, data.new_empty(_reserve(data, states, weights))]

    @torch.library.custom_op("eaco::rnn_backward", mutates_args=())
    def rnn_backward(
        grads: list[Tensor],
        data: Tensor,
        states: list[Tensor],
        weights: list[Tensor],
        kind: str,
        layers: int,
        biases: bool,
        bidirectional: bool,
        batch_first: bool,
        reserve: Tensor,
    ) -> list[Tensor]:
        n = len(states)

        def run(leaves: list[Tensor]) -> list[Tensor]:
            return _recur(
                leaves[0], leaves[1 : n + 1], leaves[n + 1 :], kind, layers, biases, bidirectional, batch_first
            )

        return _gradients(run, [data, *states, *weights], grads)

    @rnn_backward.register_fake
    def _(grads: Any, data: Any, states: Any, weights: Any, *rest: Any) -> list[Any]:
        return [t.new_empty(t.shape) for t in (data, *states, *weights)]

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        data, states, weights, *ctx.rest = inputs
        ctx.counts = len(states), len(weights)
        ctx.out_shapes = [t.shape for t in output[:-1]]
        ctx.save_for_backward(data, *states, *weights, output[-1])

    def backward(ctx: Any, grads: Any) -> Any:
        data, *others, reserve = ctx.saved_tensors
        n, m = ctx.counts
        given = [
            data.new_zeros(shape) if g is None else g.contiguous()
            for g, shape in zip(grads[:-1], ctx.out_shapes, strict=True)
        ]
        found = torch.ops.eaco.rnn_backward(given, data, others[:n], others[n:], *ctx.rest, reserve)
        return found[0], found[1 : n + 1], found[n + 1 : n + 1 + m], *([None] * 5)

    rnn.register_autograd(backward, setup_context=keep)


def _reserve(data: Any, states: Any, weights: Any) -> tuple[int]:
    """Elements kept for backward: each gate's value per layer, direction, step and sample, as cuDNN does (plus the
    cell state of an LSTM)."""
    steps = 1
    for size in data.shape[:-1]:
        steps *= size
    gates = sum(w.shape[0] for w in weights if w.dim() == 2) // 2
    cells = states[0].shape[0] * states[0].shape[-1] if len(states) > 1 else 0
    return (steps * (gates + cells),)


@cache
def define_kernels() -> None:
    """Register the operations with torch, once a process."""
    _define_attention()
    _define_rnn()


def _sdpa(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Dropout inside attention changes no shape and is left out; grouped queries are recognised by their shapes."""
    if query.dim() < 3 or not (query.dim() == key.dim() == value.dim()):
        raise RuntimeError("attention over queries, keys and values of unlike or too few dimensions")
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    lead: Any = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])  # type: ignore[no-untyped-call]
    query, key, value = (t.expand(*lead, *t.shape[-3:]) for t in (query, key, value))
    if not enable_gqa and key.shape[-3] != query.shape[-3]:
        key, value = (t.expand(*t.shape[:-3], query.shape[-3], *t.shape[-2:]) for t in (key, value))
    return torch.ops.eaco.attention(query, key, value, attn_mask, is_causal, float(scale))[0]


def _layers(kind: str) -> Callable[..., Any]:
    def run(
        data: Any,
        hidden: Any,
        weights: Any,
        biases: bool,
        layers: int,
        _dropout: float,
        _train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        states = list(hidden) if isinstance(hidden, list | tuple) else [hidden]
        found = torch.ops.eaco.rnn(data, states, list(weights), kind, layers, biases, bidirectional, batch_first)
        return tuple(found[:-1])

    return run


def _packed_layers(kind: str) -> Callable[..., Any]:
    def run(
        data: Any,
        batch_sizes: Any,
        hidden: Any,
        weights: Any,
        biases: bool,
        layers: int,
        _dropout: float,
        _train: bool,
        bidirectional: bool,
    ) -> Any:
        """All sequences at full length: (steps x batch, features) is (steps, batch, features)."""
        states = list(hidden) if isinstance(hidden, list | tuple) else [hidden]
        steps = batch_sizes.shape[0]
        if data.shape[0] % steps:
            raise RuntimeError("packed sequences of different lengths")
        whole = data.reshape(steps, data.shape[0] // steps, data.shape[1])
        out, *rest = torch.ops.eaco.rnn(whole, states, list(weights), kind, layers, biases, bidirectional, False)
        return (out.reshape(data.shape[0], out.shape[-1]), *rest[:-1])

    return run


def _pack(data: Any, _lengths: Any, batch_first: bool) -> Any:
    """As if no sequence were shorter than the longest: an upper bound, since lengths are data."""
    by_step = data.transpose(0, 1) if batch_first else data
    steps, batch = by_step.shape[:2]
    return by_step.reshape(steps * batch, *by_step.shape[2:]), torch.full((steps,), batch, dtype=torch.int64)


def _unpack(data: Any, batch_sizes: Any, batch_first: bool, _padding: float, _total: int) -> Any:
    steps = batch_sizes.shape[0]
    by_step = data.reshape(steps, data.shape[0] // steps, *data.shape[1:])
    lengths = torch.full((by_step.shape[1],), steps, dtype=torch.int64)
    return by_step.transpose(0, 1) if batch_first else by_step, lengths


def _dropout(data: Any, p: float, train: bool) -> Any:
    return torch.native_dropout(data, p, True)[0] if train and p > 0 else data


@contextmanager
def fused_kernels(*, guess_lengths: bool, on_pack: Callable[[], None]) -> Iterator[None]:
    """Run the CUDA-like kernels in place of ATen's composites on CPU tensors that autograd may see.

    Args:
        guess_lengths: treat packed sequences as unpadded (needed where lengths are fake); ``on_pack`` is told.
    """
    define_kernels()
    with torch.library._scoped_library("aten", "IMPL") as library:

        def put(name: str, function: Callable[..., Any]) -> None:
            library.impl(name, function, "AutogradCPU")

        put("scaled_dot_product_attention", _sdpa)
        put("dropout", _dropout)
        for kind in _RECURRENT:
            put(f"{kind}.input", _layers(kind))
        if guess_lengths:

            def pack(data: Any, lengths: Any, batch_first: bool) -> Any:
                on_pack()
                return _pack(data, lengths, batch_first)

            for kind in _RECURRENT:
                put(f"{kind}.data", _packed_layers(kind))
            put("_pack_padded_sequence", pack)
            put("_pad_packed_sequence", _unpack)
        yield
