"""Vision reference jobs: sizes against published or hand-derived figures, fake steps, real steps of the small ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from eaco_datasets.errors import InputError  # noqa: E402
from eaco_datasets.names import dataset_slug, families  # noqa: E402
from eaco_features.graphs.job import TrainingJob  # noqa: E402
from eaco_features.zoo import cyclegan, googlenet, pointnet, shufflenetv2, swin  # noqa: E402
from eaco_features.zoo._common import DropPath  # noqa: E402

REFERENCE: dict[str, Any] = json.loads(
    files("eaco_features.zoo").joinpath("vision_reference.json").read_text(encoding="utf-8")
)
JOBS: dict[str, dict[str, Any]] = REFERENCE["jobs"]
NEEDS_TWO = {"efficientnet-b0-cifar10", "pointnet-shapenet"}
OPTIMIZERS = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "adadelta": "Adadelta"}
TOLERANCE = 0.02

every_job = pytest.mark.parametrize("name", JOBS)


def builder(name: str) -> Callable[[int], TrainingJob]:
    module, function = JOBS[name]["build"].split(":")
    build: Callable[[int], TrainingJob] = getattr(import_module(module), function)
    return build


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Steps this small lose more to threads that wait for each other than they gain."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def fake_job(name: str) -> tuple[FakeTensorMode, TrainingJob]:
    """A job at batch size 2 on fake tensors, and the mode to use it under."""
    mode = FakeTensorMode()
    with mode:
        return mode, builder(name)(2)


def n_parameters(*modules: nn.Module) -> int:
    return sum(p.numel() for module in modules for p in module.parameters())


def forward_macs(net: nn.Module, shape: list[int]) -> int:
    """Multiply-accumulates of one sample, attention counted as its two matrix products; ``net`` is on fake tensors."""
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        net.eval()(torch.empty(1, *shape))
    net.train()
    return counter.get_total_flops() // 2


@every_job
def test_parameters_and_forward_macs_are_the_stated_ones(name: str) -> None:
    entry = JOBS[name]
    mode, job = fake_job(name)
    with mode:
        macs = forward_macs(job.modules[0], entry["forward_macs"].get("input_shape", entry["input_shape"]))
    exact = entry["parameters"]["value"] % 1000 != 0  # else published in thousands or coarser
    assert n_parameters(*job.modules) == pytest.approx(entry["parameters"]["value"], rel=0 if exact else TOLERANCE)
    assert macs == pytest.approx(entry["forward_macs"]["value"], rel=TOLERANCE)


@every_job
def test_fake_steps_train_every_parameter_on_batches_of_the_size_asked_for(name: str) -> None:
    mode, small = fake_job(name)
    with mode:
        large = builder(name)(3)
    for batch_size, job in ((2, small), (3, large)):
        seen: list[int] = []
        for module in job.modules:
            module.register_forward_pre_hook(lambda _, inputs, seen=seen: seen.append(len(inputs[0])))
        with mode:
            loss = job.step()
        assert isinstance(loss, FakeTensor)
        assert loss.shape == ()
        assert set(seen) == {batch_size}
        assert all(p.grad is not None for module in job.modules for p in module.parameters())
        groups = [group for optimizer in job.optimizers for group in optimizer.param_groups]
        assert sum(len(group["params"]) for group in groups) == sum(len(list(m.parameters())) for m in job.modules)
        for optimizer in job.optimizers:
            keeps_state = optimizer.defaults.get("momentum") != 0
            assert len(optimizer.state) == keeps_state * sum(len(g["params"]) for g in optimizer.param_groups)


@every_job
def test_the_table_describes_the_job(name: str) -> None:
    entry = JOBS[name]
    assert name == f"{entry['family']}-{entry['dataset']}"
    assert entry["family"] in families()
    assert dataset_slug(entry["dataset"]) == entry["dataset"]
    assert entry["batch_sizes"] == sorted(set(entry["batch_sizes"]))
    assert entry["samples_per_epoch"] > max(entry["batch_sizes"])
    for figure in ("parameters", "forward_macs"):
        assert entry[figure]["status"] in ("published", "hand-derived")
        assert entry[figure]["source"]
    _, job = fake_job(name)
    assert {type(optimizer).__name__ for optimizer in job.optimizers} == {OPTIMIZERS[entry["optimizer"]]}
    assert job.samples_per_step in (None, 2)


@every_job
def test_a_batch_too_small_to_train_on_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="batch_size: batch size 0; expected at least"):
        builder(name)(0)
    if name in NEEDS_TWO:
        with pytest.raises(InputError, match="expected at least 2"):
            builder(name)(1)


SMALL = {
    name: builder(name)
    for name in (
        "vgg-cifar-cifar10",
        "mobilenetv2-cifar10",
        "efficientnet-b0-cifar10",
        "shufflenetv2-cifar100",
        "dcgan-lsun",
        "pointnet-shapenet",
    )
} | {"cyclegan at 32 px": lambda batch_size: cyclegan.cyclegan_job(batch_size, 32)}


@pytest.mark.parametrize("name", SMALL)
def test_a_real_step_changes_every_weight(name: str) -> None:
    torch.manual_seed(0)
    job = SMALL[name](2)
    before = [[p.detach().clone() for p in module.parameters()] for module in job.modules]
    loss = job.step()
    assert isinstance(loss, torch.Tensor)
    assert torch.isfinite(loss)
    assert loss > 0
    for module, old in zip(job.modules, before, strict=True):
        for p, was in zip(module.parameters(), old, strict=True):
            assert torch.isfinite(p).all()
            assert p.dim() == 1 or not torch.equal(p, was)


def test_steps_learn_the_held_batch() -> None:
    torch.manual_seed(0)
    job = builder("resnet18-cifar10")(4)
    losses = [float(job.step()) for _ in range(3)]  # type: ignore[arg-type]
    assert losses[-1] < losses[0] / 2


def test_dcgan_steps_the_discriminator_before_the_generator() -> None:
    job = builder("dcgan-lsun")(2)
    order: list[int] = []
    for index, optimizer in enumerate(job.optimizers):
        optimizer.register_step_post_hook(lambda *_, index=index: order.append(index))
    job.step()
    assert order == [1, 0]  # the optimizers are listed generator first


@pytest.mark.parametrize("image_size_px", [16, 40, 0])
def test_cyclegan_refuses_sizes_its_networks_cannot_halve(image_size_px: int) -> None:
    with pytest.raises(InputError, match="image_size_px"):
        cyclegan.cyclegan_job(1, image_size_px)


# Published figures of forms that no job trains.


def test_pointnet_with_both_transforms_is_the_papers() -> None:
    """Table 6 of arXiv 1612.00593: 3.5 M parameters, 440 M operations (multiply-adds) a sample of 1,024 points."""
    with FakeTensorMode():
        net = pointnet.pointnet(40, align_features=True)
        macs = forward_macs(net, [3, 1024])
    assert n_parameters(net) == pytest.approx(3.5e6, rel=TOLERANCE)
    assert macs == pytest.approx(440e6, rel=TOLERANCE)


def test_googlenet_without_auxiliary_classifiers_is_the_published_one() -> None:
    """torchvision model documentation: 6,624,904 parameters."""
    with FakeTensorMode():
        net = googlenet.GoogLeNet()
    assert n_parameters(net) - n_parameters(net.auxiliary_4a, net.auxiliary_4d) == 6_624_904


# Hand derivations of the forms for small images, from the papers' tables and independent of the modules.


class LayerSum:
    """Adds up convolutions of square images: parameters and multiply-accumulates."""

    def __init__(self) -> None:
        self.parameters = self.macs = 0

    def conv(self, n_in: int, n_out: int, kernel: int, side: int, *, groups: int = 1, extra: int = 2) -> None:
        """``side`` pixels out; ``extra`` parameters a channel: 2 for batch norm, 1 for a bias, 3 for both."""
        weights = kernel * kernel * n_in * n_out // groups
        self.parameters += weights + extra * n_out
        self.macs += weights * side * side


def vgg_sum() -> LayerSum:
    total, n_in, side = LayerSum(), 3, 32
    for n_convs, n_out in ((1, 64), (1, 128), (2, 256), (2, 512), (2, 512)):
        for _ in range(n_convs):
            total.conv(n_in, n_out, 3, side, extra=3)
            n_in = n_out
        side //= 2
    total.conv(512, 10, 1, 1, extra=1)
    return total


def resnet18_sum() -> LayerSum:
    total, n_in = LayerSum(), 64
    total.conv(3, 64, 3, 32)
    for n_out, side in ((64, 32), (128, 16), (256, 8), (512, 4)):
        total.conv(n_in, n_out, 3, side)
        for _ in range(3):
            total.conv(n_out, n_out, 3, side)
        if n_in != n_out:
            total.conv(n_in, n_out, 1, side)
        n_in = n_out
    total.conv(512, 10, 1, 1, extra=1)
    return total


def inverted_bottleneck_sum(stages: tuple[tuple[int, int, int, int], ...], *, gated: bool) -> tuple[LayerSum, int]:
    total, n_in, side = LayerSum(), 32, 32
    total.conv(3, 32, 3, 32)
    for expansion, n_out, n_blocks, first_stride in stages:
        for stride in (first_stride, *[1] * (n_blocks - 1)):
            n_expanded, side_out = expansion * n_in, side // stride
            total.conv(n_in, n_expanded, 1, side)
            total.conv(n_expanded, n_expanded, 3, side_out, groups=n_expanded)
            total.conv(n_expanded, n_out, 1, side_out)
            if stride == 1 and n_in != n_out:
                total.conv(n_in, n_out, 1, side_out)
            if gated:
                total.conv(n_out, n_out // 16, 1, 1, extra=1)
                total.conv(n_out // 16, n_out, 1, 1, extra=1)
            n_in, side = n_out, side_out
    return total, side


def mobilenetv2_sum() -> LayerSum:
    stages = ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    total, side = inverted_bottleneck_sum(stages, gated=False)
    total.conv(320, 1280, 1, side)
    total.conv(1280, 10, 1, 1, extra=1)
    return total


def efficientnet_sum() -> LayerSum:
    stages = (
        (1, 16, 1, 2),
        (6, 24, 2, 1),
        (6, 40, 2, 2),
        (6, 80, 3, 2),
        (6, 112, 3, 1),
        (6, 192, 4, 2),
        (6, 320, 1, 2),
    )
    total, _ = inverted_bottleneck_sum(stages, gated=True)
    total.conv(320, 10, 1, 1, extra=1)
    return total


def shufflenetv2_sum() -> LayerSum:
    total, n_in = LayerSum(), 24
    total.conv(3, 24, 3, 32, extra=3)
    for n_out, n_units, side in ((116, 4, 16), (232, 8, 8), (464, 4, 4)):
        half = n_out // 2
        total.conv(n_in, n_in, 3, side, groups=n_in, extra=3)  # short branch
        total.conv(n_in, half, 1, side, extra=3)
        total.conv(n_in, n_in, 1, 2 * side, extra=3)
        total.conv(n_in, n_in, 3, side, groups=n_in, extra=3)
        total.conv(n_in, half, 1, side, extra=3)
        for _ in range(n_units - 1):
            total.conv(half, half, 1, side, extra=3)
            total.conv(half, half, 3, side, groups=half, extra=3)
            total.conv(half, half, 1, side, extra=3)
        n_in = n_out
    total.conv(464, 1024, 1, 4, extra=3)
    total.conv(1024, 100, 1, 1, extra=1)
    return total


def cyclegan_generator_sum() -> LayerSum:
    total = LayerSum()
    total.conv(3, 64, 7, 256, extra=1)
    total.conv(64, 128, 3, 128, extra=1)
    for n_in in (128, *[256] * 18):
        total.conv(n_in, 256, 3, 64, extra=1)
    total.conv(256, 128, 3, 128, extra=1)
    total.conv(128, 64, 3, 256, extra=1)
    total.conv(64, 3, 7, 256, extra=1)
    return total


def cyclegan_discriminator_sum() -> LayerSum:
    total, n_in = LayerSum(), 3
    for n_out, side in ((64, 128), (128, 64), (256, 32), (512, 16), (1, 16)):
        total.conv(n_in, n_out, 4, side, extra=1)
        n_in = n_out
    return total


@pytest.mark.parametrize(
    ("name", "derive"),
    [
        ("vgg-cifar-cifar10", vgg_sum),
        ("resnet18-cifar10", resnet18_sum),
        ("mobilenetv2-cifar10", mobilenetv2_sum),
        ("efficientnet-b0-cifar10", efficientnet_sum),
        ("shufflenetv2-cifar100", shufflenetv2_sum),
    ],
)
def test_stated_figures_of_small_image_forms_follow_from_their_layers(
    name: str, derive: Callable[[], LayerSum]
) -> None:
    total = derive()
    assert JOBS[name]["parameters"]["value"] == total.parameters
    assert JOBS[name]["forward_macs"]["value"] == total.macs


def test_cyclegan_follows_from_its_layers() -> None:
    make, judge = cyclegan_generator_sum(), cyclegan_discriminator_sum()
    entry = JOBS["cyclegan-monet2photo"]
    assert entry["parameters"]["value"] == 2 * (make.parameters + judge.parameters)
    assert make.macs == pytest.approx(entry["forward_macs"]["value"], rel=TOLERANCE)
    _, job = fake_job("cyclegan-monet2photo")
    assert [n_parameters(module) for module in job.modules] == [make.parameters] * 2 + [judge.parameters] * 2


# Building blocks.


@given(n=st.integers(1, 3), rows=st.integers(1, 3), columns=st.integers(1, 3), channels=st.integers(1, 4))
def test_windows_give_the_token_map_back(n: int, rows: int, columns: int, channels: int) -> None:
    tokens = torch.arange(n * rows * columns * 49 * channels).view(n, rows * 7, columns * 7, channels)
    windows = swin.to_windows(tokens)
    assert torch.equal(windows[0, :, 0], tokens[0, :7, :7, 0].flatten())
    assert torch.equal(swin.from_windows(windows, rows * 7, columns * 7), tokens)


def test_the_shift_mask_parts_only_windows_at_the_border() -> None:
    mask = swin.shift_mask(14, 3)  # 2 x 2 windows; all but the first meet a border
    assert mask.shape == (4, 1, 49, 49)
    assert (mask[0] == 0).all()
    assert all((mask[window] < 0).any() for window in (1, 2, 3))
    assert torch.equal(mask, mask.transpose(-2, -1))
    assert (mask.diagonal(dim1=-2, dim2=-1) == 0).all()


def test_relative_positions_share_a_row_exactly_when_their_offsets_agree() -> None:
    index = swin.relative_index()
    at = [(y, x) for y in range(7) for x in range(7)]
    rows: dict[tuple[int, int], set[int]] = {}
    for i, (y, x) in enumerate(at):
        for j, (other_y, other_x) in enumerate(at):
            rows.setdefault((y - other_y, x - other_x), set()).add(int(index[i, j]))
    assert sorted(row for shared in rows.values() for row in shared) == list(range(13 * 13))


@given(pairs=st.integers(1, 8))
def test_the_shuffle_interleaves_both_halves(pairs: int) -> None:
    x = torch.arange(2 * pairs, dtype=torch.float32).view(1, -1, 1, 1)
    shuffled = shufflenetv2.shuffle_two_groups(x).flatten().tolist()
    assert shuffled == [half * pairs + at for at in range(pairs) for half in (0, 1)]


def test_a_dropped_path_keeps_or_drops_whole_samples_and_is_the_identity_when_evaluating() -> None:
    torch.manual_seed(0)
    drop, x = DropPath(0.25), torch.ones(4000, 3)
    kept = drop.train()(x)
    assert set(kept.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert torch.equal(kept[:, 0], kept[:, 2])
    assert kept.mean().item() == pytest.approx(1.0, abs=0.05)
    assert torch.equal(drop.eval()(x), x)
