"""Recorded graphs against numbers derived by hand, and fake runs against real ones."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed (eaco[gnn])")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from eaco_datasets.errors import InputError  # noqa: E402
from eaco_features.graphs.graph import COST_COLUMNS, ModelGraph  # noqa: E402
from eaco_features.graphs.job import BuildJob, TrainingJob  # noqa: E402
from eaco_features.graphs.recorder import record, trace  # noqa: E402
from eaco_features.graphs.summary import totals  # noqa: E402

FLOAT, LONG = 4, 8


def _builder(
    make: Callable[[], nn.Module], shape: tuple[int, ...], optimizer: Any = torch.optim.SGD, **options: Any
) -> BuildJob:
    def build_job(batch_size: int) -> TrainingJob:
        model = make()
        stepper = optimizer(model.parameters(), lr=0.1, **options)
        x = torch.randn(batch_size, *shape)

        def step() -> None:
            stepper.zero_grad()
            out = model(x)
            (out[0] if isinstance(out, tuple) else out).sum().backward()
            stepper.step()

        return TrainingJob(step, [model], [stepper])

    return build_job


def _flops(graph: ModelGraph, kind: str, batch_size: int) -> dict[str, float]:
    costs = graph.at(batch_size)
    found = {"fwd": 0.0, "bwd": 0.0}
    for i, (op_class, phase) in enumerate(zip(graph.op_class, graph.phase, strict=True)):
        if op_class == kind:
            found[phase] += costs.flops[i]
    return found


def test_depthwise_separable_block_as_in_mobilenetv2() -> None:
    """Expand 16 -> 96, depthwise 3x3 at stride 2 on 14 x 14, project 96 -> 24."""

    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(16, 96, 1, bias=False),
            nn.BatchNorm2d(96),
            nn.ReLU6(),
            nn.Conv2d(96, 96, 3, stride=2, padding=1, groups=96, bias=False),
            nn.BatchNorm2d(96),
            nn.ReLU6(),
            nn.Conv2d(96, 24, 1, bias=False),
        )

    graph = record(_builder(make, (16, 14, 14)), 4)
    expand = 2 * 14 * 14 * 16 * 96
    depthwise = 2 * 7 * 7 * 96 * 9
    project = 2 * 7 * 7 * 96 * 24
    assert _flops(graph, "conv_depthwise", 10) == {"fwd": 10 * depthwise, "bwd": 20 * depthwise}
    # The input needs no gradient, so the first convolution's backward is the gradient to its weight alone.
    assert _flops(graph, "conv", 10) == {"fwd": 10 * (expand + project), "bwd": 10 * (expand + 2 * project)}
    at = graph.op_class.index("conv_depthwise")
    assert graph.attributes[at] == {
        "in_channels": 96,
        "out_channels": 96,
        "kernel": (3, 3),
        "groups": 96,
        "transposed": 0,
        "stride": (2, 2),
        "dilation": (1, 1),
    }
    assert graph.params[at] == 96 * 9
    assert graph.recording.affine is True


def test_transposed_and_grouped_convolutions() -> None:
    graph = record(_builder(lambda: nn.ConvTranspose2d(8, 4, 4, stride=2, groups=2), (8, 5, 5)), 3)
    assert _flops(graph, "conv_transposed", 3)["fwd"] == 2 * 3 * 5 * 5 * (8 * 2 * 16)
    grouped = record(_builder(lambda: nn.Conv1d(8, 6, 3, groups=2), (8, 10)), 3)
    assert _flops(grouped, "conv", 3)["fwd"] == 2 * 3 * 8 * (6 * 4 * 3)


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x: Any) -> Any:
        query, key, value = self.inward(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.outward(mixed.transpose(1, 2).flatten(2))


def test_an_attention_block() -> None:
    """12 tokens, 4 heads of 8: 2 products forward, 5 backward, each 2 x heads x tokens^2 x head size."""
    graph = record(_builder(_Attention, (12, 32)), 2)
    product = 2 * 4 * 12 * 12 * 8
    assert _flops(graph, "attention", 5) == {"fwd": 5 * 2 * product, "bwd": 5 * 5 * product}
    inward, outward = 2 * 12 * 32 * 96, 2 * 12 * 32 * 32
    assert _flops(graph, "matmul", 5) == {"fwd": 5 * (inward + outward), "bwd": 5 * (inward + 2 * outward)}
    assert graph.op.count("eaco.attention") == graph.op.count("eaco.attention_backward") == 1
    known = graph.attributes[graph.op.index("eaco.attention")]
    assert known == {"heads": 4, "queries": 12, "keys": 12, "head_size": 8}
    at = graph.op.index("eaco.attention")
    assert graph.at(5).bytes_written[at] == 5 * 4 * 12 * (8 + 1) * FLOAT


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers_are_one_kernel_each_way(kind: str, gates: int) -> None:
    """7 steps, 16 -> 20, two layers: gates x hidden x (input + hidden) weights a layer, each used once a step."""

    def make() -> nn.Module:
        layer: nn.Module = getattr(nn, kind)(16, 20, num_layers=2, batch_first=True)
        return layer

    graph = record(_builder(make, (7, 16)), 2)
    weights = gates * 20 * (16 + 20) + gates * 20 * (20 + 20)
    assert _flops(graph, "rnn", 6) == {"fwd": 6 * 2 * 7 * weights, "bwd": 6 * 4 * 7 * weights}
    assert graph.op_class.count("rnn") == 2
    assert graph.recording.affine is True


def test_batched_products_and_vectors() -> None:
    class Products(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 5))
            self.vector = nn.Parameter(torch.randn(5))

        def forward(self, x: Any) -> Any:
            left = torch.bmm(x, x.transpose(1, 2)).sum()
            return (
                left
                + torch.baddbmm(x, x @ self.weight, self.weight.T.expand(len(x), 5, 6)).sum()
                + (torch.mv(self.weight, self.vector).sum())
            )

    graph = record(_builder(Products, (3, 6)), 2)
    flops = dict(zip(graph.op, graph.at(7).flops.tolist(), strict=True))
    assert flops["bmm"] > 0
    by_op = [(op, f) for op, f, phase in zip(graph.op, graph.at(7).flops, graph.phase, strict=True) if phase == "fwd"]
    assert ("bmm", 7 * 2 * 3 * 6 * 3) in by_op
    assert ("baddbmm", 7 * 2 * 3 * 5 * 6) in by_op
    assert ("mv", 2 * 6 * 5) in by_op


def test_complex_products_count_four_times(awkward: ModuleType) -> None:
    graph = record(awkward.complex_input, 2)
    assert _flops(graph, "matmul", 3)["fwd"] == 4 * 2 * 3 * 8 * 8


def test_bytes_of_an_embedding_are_those_of_the_rows_it_picks() -> None:
    def build_job(batch_size: int) -> TrainingJob:
        table = nn.Embedding(50_000, 16)
        index = torch.randint(50_000, (batch_size, 3))
        return TrainingJob(lambda: table(index).sum().backward(), [table])

    graph = record(build_job, 2)
    at = graph.op.index("embedding")
    assert graph.at(10).bytes_read[at] == 10 * 3 * (16 * FLOAT + LONG)
    assert graph.at(10).bytes_written[at] == 10 * 3 * 16 * FLOAT


@pytest.mark.parametrize("mode", ["fake", "real"])
def test_a_sparse_update_touches_the_rows_it_is_given(mode: Any) -> None:
    def build_job(batch_size: int) -> TrainingJob:
        table = nn.Embedding(50_000, 16, sparse=True)
        index = torch.arange(batch_size)
        optimizer = torch.optim.SGD(table.parameters(), lr=0.1)

        def step() -> None:
            optimizer.zero_grad()
            table(index).sum().backward()
            optimizer.step()

        return TrainingJob(step, [table], [optimizer])

    (update,) = [kernel for kernel in trace(build_job, 10, mode=mode).kernels if kernel.phase == "opt"]
    rows = 10 * 16 * FLOAT
    assert (update.bytes_read, update.bytes_written) == (2 * rows + 10 * LONG, rows)


def test_saved_activations_optimizer_state_and_memory() -> None:
    """Linear, ReLU, Linear: kept are the input of the second layer (ReLU's own output); the input is not a result."""

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 5))

    graph = record(_builder(make, (10,), torch.optim.Adam), 4)
    found = totals(graph, 8)
    count = 10 * 30 + 30 + 30 * 5 + 5
    assert found.parameter_count == count
    assert found.optimizer_state_bytes == 2 * count * FLOAT
    assert found.saved_activation_bytes == 8 * 30 * FLOAT
    held = (1 + 2) * count * FLOAT + 8 * 10 * FLOAT  # parameters, two moments, the input
    assert graph.at(8).peak_memory_bytes > held + found.saved_activation_bytes
    assert graph.recording.optimizers == ("Adam",)


def test_the_optimizer_works_on_lists_of_tensors() -> None:
    graph = record(_builder(lambda: nn.Sequential(*(nn.Linear(4, 4) for _ in range(20))), (4,), torch.optim.AdamW), 2)
    updates = [op for op, phase in zip(graph.op, graph.phase, strict=True) if phase == "opt"]
    assert updates
    assert all(op.startswith("_foreach_") for op in updates)
    assert len(updates) < 20


def test_phases_follow_one_another_and_edges_lead_forward() -> None:
    graph = record(_builder(lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), (4,)), 2)
    order = [("fwd", "bwd", "opt").index(phase) for phase in graph.phase]
    assert order == sorted(order)
    assert (graph.edges[:, 0] < graph.edges[:, 1]).all()
    first, relu, second = (graph.op.index("addmm"), graph.op.index("relu"), graph.op.index("addmm", 2))
    pairs = {tuple(edge) for edge in graph.edges.tolist()}
    assert {(first, relu), (relu, second)} <= pairs


def _small_transformer() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)), (3, 9, 9)),
        (_small_transformer, (5, 16)),
        (lambda: nn.LSTM(6, 7, batch_first=True, bidirectional=True), (5, 6)),
        (lambda: nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU(), nn.Dropout(0.2)), (6,)),
        (lambda: nn.Sequential(nn.ConvTranspose2d(4, 3, 4, 2, 1, bias=False), nn.Tanh()), (4, 5, 5)),
    ],
)
def test_a_fake_run_records_what_a_real_one_does(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    build_job = _builder(make, shape, torch.optim.Adam)
    assert trace(build_job, 3).kernels == trace(build_job, 3, mode="real").kernels


def test_real_fused_kernels_compute_what_torch_does() -> None:
    """The stand-ins must not change what a real run computes: their gradients are torch's own."""
    from eaco_features.graphs.fused import fused_kernels

    def gradients() -> list[Any]:
        torch.manual_seed(1)
        layer, attention = nn.LSTM(4, 6, 2, bidirectional=True), nn.MultiheadAttention(12, 3)
        x = torch.randn(5, 2, 4)
        bias = torch.randn(5, 5, requires_grad=True)
        mixed = layer(x)[0]
        attended = attention(mixed, mixed, mixed, need_weights=False, attn_mask=bias)[0]
        attended.square().sum().backward()
        return [bias.grad, *(p.grad for p in (*layer.parameters(), *attention.parameters()))]

    plain = gradients()
    with fused_kernels(guess_lengths=False, on_pack=lambda: None):
        replaced = gradients()
    again = gradients()
    for expected, found, after in zip(plain, replaced, again, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(after, expected)


@pytest.mark.parametrize("batch_size", [1, 5, 17])
def test_any_batch_size_is_exact(batch_size: int) -> None:
    build_job = _builder(
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 4)), (3, 6, 6)
    )
    graph = record(build_job, 4)
    directly = trace(build_job, batch_size).kernels
    for name in COST_COLUMNS:
        assert getattr(graph.at(batch_size), name).tolist() == [getattr(kernel, name) for kernel in directly], name


def test_the_same_job_gives_the_same_graph() -> None:
    build_job = _builder(_small_transformer, (5, 16))
    assert record(build_job, 2).content_hash == record(build_job, 2).content_hash


def test_recording_leaves_torch_as_it_was() -> None:
    dtype, compiled, attention = torch.get_default_dtype(), torch.compile, F.scaled_dot_product_attention
    state = torch.get_rng_state()

    def build_job(batch_size: int) -> TrainingJob:
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.manual_seed(batch_size)
        raise LookupError("gone")

    with pytest.raises(InputError, match="LookupError: gone"):
        record(build_job, 2)
    assert torch.get_default_dtype() is dtype
    assert torch.compile is compiled
    assert F.scaled_dot_product_attention is attention
    assert torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state)
    assert type(torch.ones(1)) is torch.Tensor


def test_no_batch_size_below_one() -> None:
    with pytest.raises(InputError, match="batch_size"):
        record(_builder(lambda: nn.Linear(2, 2), (2,)), 0)
