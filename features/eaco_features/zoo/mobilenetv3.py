"""MobileNetV3, Large and Small (Howard et al. 2019, arXiv 1905.02244). Lucid's ``MobileNetV3`` is the Small one."""

from __future__ import annotations

from torch import nn

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._common import (
    IMAGENET,
    InvertedBottleneck,
    SqueezeExcite,
    classification_job,
    conv_norm,
    plain_sgd,
    relu,
)

_Block = tuple[int, int, int, bool, bool, int]
# Table 1 of the paper: (kernel, expanded channels, channels out, gated, hard swish, stride).
_LARGE: tuple[_Block, ...] = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)
# Table 2 of the paper, in the same order.
_SMALL: tuple[_Block, ...] = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)
_N_STEM = 16


def _hard_swish() -> nn.Module:
    return nn.Hardswish(inplace=True)


def _hard_sigmoid() -> nn.Module:
    return nn.Hardsigmoid(inplace=True)


def _to_multiple_of_8(channels: float) -> int:
    """The nearest multiple of 8, at least 8, and never more than 10 % below (the authors' rounding)."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def _mobilenetv3(blocks: tuple[_Block, ...], n_last: int, n_hidden: int, n_classes: int) -> nn.Sequential:
    layers: list[nn.Module] = [conv_norm(3, _N_STEM, 3, stride=2, activation=_hard_swish)]
    n_in = _N_STEM
    for kernel, n_expanded, n_out, gated, swish, stride in blocks:
        gate = SqueezeExcite(n_expanded, _to_multiple_of_8(n_expanded / 4), relu, _hard_sigmoid) if gated else None
        activation = _hard_swish if swish else relu
        layers.append(
            InvertedBottleneck(n_in, n_expanded, n_out, kernel=kernel, stride=stride, activation=activation, gate=gate)
        )
        n_in = n_out
    return nn.Sequential(
        *layers,
        conv_norm(n_in, n_last, activation=_hard_swish),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        *(nn.Linear(n_last, n_hidden), _hard_swish(), nn.Dropout(0.2)),
        nn.Linear(n_hidden, n_classes),
    )


def mobilenetv3_large(n_classes: int = 1000) -> nn.Sequential:
    """The Large network, for images ``(n, 3, 224, 224)``."""
    return _mobilenetv3(_LARGE, 960, 1280, n_classes)


def mobilenetv3_small(n_classes: int = 1000) -> nn.Sequential:
    """The Small network, for images ``(n, 3, 224, 224)``."""
    return _mobilenetv3(_SMALL, 576, 1024, n_classes)


def build_mobilenetv3_large_imagenet(batch_size: int) -> TrainingJob:
    """MobileNetV3-Large on ImageNet with SGD."""
    return classification_job(batch_size, IMAGENET, mobilenetv3_large)


def build_mobilenetv3_imagenet(batch_size: int) -> TrainingJob:
    """MobileNetV3-Small on ImageNet with plain SGD, the job that Lucid measured."""
    return classification_job(batch_size, IMAGENET, mobilenetv3_small, plain_sgd)
