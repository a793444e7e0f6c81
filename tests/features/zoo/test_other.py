"""Reference jobs for sequences, recommendation, reinforcement learning and graphs: their sizes, work and steps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.resources import files
from typing import Any, NoReturn

import pytest

from eaco_datasets.errors import InputError
from eaco_features.graphs.job import BuildJob, TrainingJob
from eaco_features.zoo.catalogue import ReferenceJob, reference_job

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from eaco_features.graphs import dynamic  # noqa: E402
from eaco_features.graphs.recorder import record  # noqa: E402
from eaco_features.zoo import bert, deepspeech2, dlrm, gcn, transformer  # noqa: E402

FRAMES = 16
"""Spectrogram columns in these tests: PyTorch's own GRU is one operation after another per column on fake tensors."""

JOBS = [
    reference_job(name)
    for name in json.loads(files("eaco_features.zoo").joinpath("other_reference.json").read_text("utf-8"))["jobs"]
]
NAMES = [job.name for job in JOBS]

SMALL_ENOUGH_TO_TRAIN = (
    *("lstm-lm-wikitext2", "neumf-movielens-1m", "autoencoder-ml-20m", "deepspeech2-librispeech", "a3c-pong"),
    *("ppo-lunarlander", "td3-bipedalwalker", "gcn-cora"),
)


class AtBackwardError(Exception):
    """Raised where the backward pass would begin."""


class CtcShapes(TorchDispatchMode):
    """Gives PyTorch's CTC loss the shapes that it lacks on fake tensors, by the recorder's rule."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        op = func._schema.name.removeprefix("aten::")
        if op in ("_ctc_loss", "_ctc_loss_backward"):
            return dynamic.answer(func, op, args, kwargs or {})
        return func(*args, **(kwargs or {}))


@contextmanager
def fake_tensors() -> Iterator[None]:
    with FakeTensorMode(), CtcShapes():
        yield


def builder(job: ReferenceJob) -> BuildJob:
    module, function = job.build.split(":")
    build: BuildJob = getattr(import_module(module), function)
    return partial(build, frames=FRAMES) if build is deepspeech2.build_deepspeech2 else build


def n_parameters(job: TrainingJob) -> int:
    return sum(parameter.numel() for module in job.modules for parameter in module.parameters())


@contextmanager
def lstm_as_products() -> Iterator[None]:
    """Without oneDNN an LSTM is matrix products, which the counter knows; as one operation it counts as nothing."""
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(True)


def forward_macs(build: BuildJob, batch_size: int, monkeypatch: pytest.MonkeyPatch) -> float:
    """Multiply-accumulates per sample up to the backward pass, as PyTorch's own counter has them."""

    def stop(*_: Any, **__: Any) -> NoReturn:
        raise AtBackwardError

    with fake_tensors():
        job = build(batch_size)
        monkeypatch.setattr(torch.autograd, "backward", stop)
        counter = FlopCounterMode(display=False)
        with sdpa_kernel(SDPBackend.MATH), lstm_as_products(), counter, pytest.raises(AtBackwardError):
            job.step()
    return float(counter.get_total_flops()) / 2 / batch_size


@pytest.mark.parametrize("job", JOBS, ids=NAMES)
def test_the_catalogue_states_the_trained_parameters(job: ReferenceJob) -> None:
    with FakeTensorMode():
        assert n_parameters(builder(job)(job.batch_sizes[0])) == job.parameters.value


@pytest.mark.parametrize("job", [job for job in JOBS if job.forward_macs], ids=lambda job: job.name)
def test_the_catalogue_states_the_forward_work(job: ReferenceJob, monkeypatch: pytest.MonkeyPatch) -> None:
    assert job.forward_macs is not None
    stated = job.forward_macs.value
    if job.family == "deepspeech2":
        stated = stated * FRAMES // deepspeech2.FRAMES
    assert forward_macs(builder(job), job.batch_sizes[0], monkeypatch) == pytest.approx(stated, rel=1e-6)


@pytest.mark.parametrize("job", JOBS, ids=NAMES)
def test_a_job_steps_on_fake_tensors_at_two_batch_sizes(job: ReferenceJob) -> None:
    batch_size = job.batch_sizes[0]
    for factor in (1, 2):
        with fake_tensors():
            built = builder(job)(factor * batch_size)
            loss = built.step()
        assert isinstance(loss, torch.Tensor)
        assert loss.shape == ()
        for module in built.modules:
            assert all(parameter.grad is not None for parameter in module.parameters())
        samples = built.samples_per_step or factor * batch_size
        assert samples == factor * batch_size * (2 if job.family == "td3" else 1)


def test_a_job_steps_again_with_the_state_it_carries() -> None:
    for name in ("lstm-lm-wikitext2", "a3c-pong", "td3-bipedalwalker"):
        with FakeTensorMode():
            job = builder(reference_job(name))(20)
            job.step()
            job.step()
            assert all(optimizer.state for optimizer in job.optimizers if isinstance(optimizer, torch.optim.Adam))


@pytest.mark.parametrize("name", SMALL_ENOUGH_TO_TRAIN)
def test_a_real_step_changes_every_module_and_has_a_finite_loss(name: str) -> None:
    torch.manual_seed(0)
    job = builder(reference_job(name))(20 if name == "a3c-pong" else 2)
    before = [[parameter.detach().clone() for parameter in module.parameters()] for module in job.modules]
    loss = job.step()
    assert isinstance(loss, torch.Tensor)
    assert torch.isfinite(loss)
    for module, old in zip(job.modules, before, strict=True):
        new = list(module.parameters())
        assert all(torch.isfinite(parameter).all() for parameter in new)
        assert any(not torch.equal(parameter, was) for parameter, was in zip(new, old, strict=True))


def test_training_on_the_same_batch_lowers_the_loss() -> None:
    torch.manual_seed(0)
    for build in (partial(dlrm.build_dlrm, table_rows=(50,) * 26), builder(reference_job("neumf-movielens-1m"))):
        job = build(8)
        losses = [float(job.step()) for _ in range(5)]  # type: ignore[arg-type]
        assert losses[-1] < losses[0]


@pytest.mark.parametrize("job", JOBS, ids=NAMES)
def test_an_empty_batch_is_refused(job: ReferenceJob) -> None:
    with pytest.raises(InputError, match="batch_size: no batch of 0; expected"):
        builder(job)(0)


def test_a3c_takes_whole_rollouts_only() -> None:
    with pytest.raises(InputError, match="expected a multiple of 20"):
        builder(reference_job("a3c-pong"))(30)


def test_bert_encoder_with_pooler_has_the_published_parameters() -> None:
    """Devlin et al. 2019 round to 110 M; the released checkpoint holds 109,482,240."""
    with FakeTensorMode():
        model = bert.Classification(classes=2)
    assert sum(p.numel() for p in (*model.encoder.parameters(), *model.pooler.parameters())) == 109_482_240


def test_bert_forward_work_at_128_tokens_is_the_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jiao et al. 2020 (TinyBERT), table 1: 22.5 billion FLOPs."""
    build = partial(bert.build_bert_base_sentiment140, length=128)
    assert 2 * forward_macs(build, 1, monkeypatch) == pytest.approx(22.5e9, rel=0.02)


def test_transformer_base_has_its_layers_and_one_shared_vocabulary() -> None:
    """Vaswani et al. 2017: 44,138,496 in the layers, which with 37,000 shared tokens is table 3's 65 M within 3 %."""
    with FakeTensorMode():
        model = transformer.Transformer((37_000, 37_000), shared=True)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == 44_138_496 + 37_000 * 512
    assert count == pytest.approx(65e6, rel=0.03)


def test_transformer_decoder_does_not_see_following_words() -> None:
    torch.manual_seed(0)
    model = transformer.Transformer((20, 20), layers=1).eval()
    source, target = torch.randint(1, 20, (1, 6)), torch.randint(1, 20, (1, 6))
    changed = target.clone()
    changed[0, 4:] = target[0, 4:] % 19 + 1
    with torch.no_grad():
        seen, other = model(source, target), model(source, changed)
    torch.testing.assert_close(seen[:, :4], other[:, :4])
    assert not torch.allclose(seen[:, 4:], other[:, 4:])


def test_fused_and_explicit_attention_agree() -> None:
    from eaco_features.zoo._sequences import Attention

    torch.manual_seed(0)
    explicit, fused = (Attention(16, 4, dropout=0.0, fused=fused) for fused in (False, True))
    fused.load_state_dict(explicit.state_dict())
    x, hidden = torch.randn(2, 5, 16), torch.zeros(1, 1, 5, 5, dtype=torch.bool)
    hidden[..., 3:] = True
    torch.testing.assert_close(explicit(x, hidden=hidden), fused(x, hidden=hidden))


def test_criteo_trains_on_all_but_the_last_of_seven_parts() -> None:
    impressions, days = 45_840_617, 7
    assert reference_job("dlrm-criteo").samples_per_epoch == impressions - impressions // days


def test_criteo_tables_hold_the_published_rows() -> None:
    """Naumov et al. 2019: about 540 M parameters in tables of width 16."""
    assert len(dlrm.TABLE_ROWS) == 26
    assert sum(dlrm.TABLE_ROWS) * dlrm.WIDTH == pytest.approx(540e6, rel=0.001)


def test_table_gradients_are_sparse() -> None:
    job = dlrm.build_dlrm(4, table_rows=(50,) * 26)
    job.step()
    model = job.modules[0]
    assert isinstance(model, dlrm.Dlrm)
    for table in model.tables:
        assert table.weight.grad.is_sparse
        assert table.weight.grad.coalesce().values().shape[0] <= 4


def test_deepspeech_is_recorded_with_pytorchs_ctc_loss() -> None:
    graph = record(partial(deepspeech2.build_deepspeech2, frames=FRAMES), 2, allow_real=False)
    losses = [
        (op, phase) for op, kind, phase in zip(graph.op, graph.op_class, graph.phase, strict=True) if kind == "loss"
    ]
    assert losses == [("_ctc_loss", "fwd"), ("_ctc_loss_backward", "bwd")]
    assert graph.recording.affine
    assert graph.recording.confidence == 1.0


def test_graph_convolution_is_the_normalised_adjacency_times_features() -> None:
    torch.manual_seed(0)
    layer = gcn.GraphConvolution(3, 2)
    sources, targets = torch.tensor([0, 1, 1, 2, 0, 1, 2]), torch.tensor([1, 0, 2, 1, 0, 1, 2])
    weights, x = torch.rand(7, 1), torch.randn(3, 3)
    adjacency = torch.zeros(3, 3)
    adjacency[targets, sources] = weights[:, 0]
    expected = adjacency @ x @ layer.linear.weight.T + layer.bias
    torch.testing.assert_close(layer(x, sources, targets, weights), expected)
