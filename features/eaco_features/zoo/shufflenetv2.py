"""ShuffleNetV2 at width 1 (Ma et al. 2018, arXiv 1807.11164), for ImageNet and for 32 x 32 images."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim import Adadelta, Optimizer

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._common import CIFAR100, IMAGENET, classification_job, conv_norm, pooled_classifier

# Table 5 of the paper, column 1x: (channels out, units) of each stage; the first unit of a stage halves the image.
_STAGES = ((116, 4), (232, 8), (464, 4))
_N_STEM, _N_HEAD = 24, 1024


def shuffle_two_groups(x: Tensor) -> Tensor:
    """Interleave the two halves of the channels of ``(n, c, h, w)``."""
    n, channels, height, width = x.shape
    return x.view(n, 2, channels // 2, height, width).transpose(1, 2).reshape(n, channels, height, width)


def _filter_branch(n_in: int, n_inner: int, n_out: int, stride: int, *, bias: bool) -> nn.Sequential:
    return nn.Sequential(
        conv_norm(n_in, n_inner, bias=bias),
        conv_norm(n_inner, n_inner, 3, stride=stride, groups=n_inner, bias=bias, activation=None),
        conv_norm(n_inner, n_out, bias=bias),
    )


class Unit(nn.Module):
    """Filter half of the channels, pass the other half on, shuffle (figure 3c of the paper)."""

    def __init__(self, n_channels: int, *, bias: bool) -> None:
        super().__init__()
        half = n_channels // 2
        self.branch = _filter_branch(half, half, half, 1, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, n_channels, h, w)`` to the same shape."""
        passed, filtered = x.chunk(2, dim=1)
        return shuffle_two_groups(torch.cat((passed, self.branch(filtered)), dim=1))


class DownUnit(nn.Module):
    """Filter all channels twice at stride 2, join, shuffle (figure 3d of the paper); ``n_inner`` channels filtered."""

    def __init__(self, n_in: int, n_inner: int, n_out: int, *, bias: bool) -> None:
        super().__init__()
        self.short = nn.Sequential(
            conv_norm(n_in, n_in, 3, stride=2, groups=n_in, bias=bias, activation=None),
            conv_norm(n_in, n_out // 2, bias=bias),
        )
        self.branch = _filter_branch(n_in, n_inner, n_out // 2, 2, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, n_in, h, w)`` to ``(n, n_out, h / 2, w / 2)``."""
        return shuffle_two_groups(torch.cat((self.short(x), self.branch(x)), dim=1))


def shufflenetv2(n_classes: int = 1000) -> nn.Sequential:
    """The paper's network, for images ``(n, 3, 224, 224)``."""
    layers: list[nn.Module] = [conv_norm(3, _N_STEM, 3, stride=2), nn.MaxPool2d(3, stride=2, padding=1)]
    n_in = _N_STEM
    for n_out, n_units in _STAGES:
        layers.append(DownUnit(n_in, n_out // 2, n_out, bias=False))
        layers.extend(Unit(n_out, bias=False) for _ in range(n_units - 1))
        n_in = n_out
    return nn.Sequential(*layers, conv_norm(n_in, _N_HEAD), pooled_classifier(_N_HEAD, n_classes))


def shufflenetv2_cifar(n_classes: int = 100) -> nn.Sequential:
    """The form for images ``(n, 3, 32, 32)`` that Zeus trained, of the public pytorch-cifar100 program.

    The stem keeps the size and has neither activation nor pool, a stage's first unit narrows only in its last
    convolution, and convolutions have biases.
    """
    layers: list[nn.Module] = [conv_norm(3, _N_STEM, 3, bias=True, activation=None)]
    n_in = _N_STEM
    for n_out, n_units in _STAGES:
        layers.append(DownUnit(n_in, n_in, n_out, bias=True))
        layers.extend(Unit(n_out, bias=True) for _ in range(n_units - 1))
        n_in = n_out
    return nn.Sequential(*layers, conv_norm(n_in, _N_HEAD, bias=True), pooled_classifier(_N_HEAD, n_classes))


def _adadelta(parameters: Iterator[nn.Parameter]) -> Optimizer:
    return Adadelta(parameters, lr=0.1)


def build_shufflenetv2_imagenet(batch_size: int) -> TrainingJob:
    """ShuffleNetV2 on ImageNet with SGD."""
    return classification_job(batch_size, IMAGENET, shufflenetv2)


def build_shufflenetv2_cifar100(batch_size: int) -> TrainingJob:
    """ShuffleNetV2 for small images on CIFAR-100 with Adadelta, the optimizer of the job that Zeus measured."""
    return classification_job(batch_size, CIFAR100, shufflenetv2_cifar, _adadelta)
