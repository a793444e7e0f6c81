"""MobileNetV3-Large (Howard et al. 2019, arXiv 1905.02244)."""

from __future__ import annotations

from torch import nn

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._common import (
    IMAGENET,
    InvertedBottleneck,
    SqueezeExcite,
    classification_job,
    conv_norm,
    relu,
)

# Table 1 of the paper: (kernel, expanded channels, channels out, gated, hard swish, stride).
_BLOCKS = (
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
_N_STEM, _N_LAST, _N_HIDDEN = 16, 960, 1280


def _hard_swish() -> nn.Module:
    return nn.Hardswish(inplace=True)


def _hard_sigmoid() -> nn.Module:
    return nn.Hardsigmoid(inplace=True)


def _to_multiple_of_8(channels: float) -> int:
    """The nearest multiple of 8, at least 8, and never more than 10 % below (the authors' rounding)."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def mobilenetv3_large(n_classes: int = 1000) -> nn.Sequential:
    """The network, for images ``(n, 3, 224, 224)``."""
    layers: list[nn.Module] = [conv_norm(3, _N_STEM, 3, stride=2, activation=_hard_swish)]
    n_in = _N_STEM
    for kernel, n_expanded, n_out, gated, swish, stride in _BLOCKS:
        gate = SqueezeExcite(n_expanded, _to_multiple_of_8(n_expanded / 4), relu, _hard_sigmoid) if gated else None
        activation = _hard_swish if swish else relu
        layers.append(
            InvertedBottleneck(n_in, n_expanded, n_out, kernel=kernel, stride=stride, activation=activation, gate=gate)
        )
        n_in = n_out
    return nn.Sequential(
        *layers,
        conv_norm(n_in, _N_LAST, activation=_hard_swish),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        *(nn.Linear(_N_LAST, _N_HIDDEN), _hard_swish(), nn.Dropout(0.2)),
        nn.Linear(_N_HIDDEN, n_classes),
    )


def build_mobilenetv3_imagenet(batch_size: int) -> TrainingJob:
    """MobileNetV3-Large on ImageNet with SGD."""
    return classification_job(batch_size, IMAGENET, mobilenetv3_large)
