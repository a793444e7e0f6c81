"""EfficientNet-B0 (Tan and Le 2019, arXiv 1905.11946), and the form for 32 x 32 images that Lucid measured."""

from __future__ import annotations

from torch import nn

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._common import (
    CIFAR10,
    IMAGENET,
    InvertedBottleneck,
    SmallImageBottleneck,
    SqueezeExcite,
    classification_job,
    conv_norm,
    pooled_classifier,
    relu,
)

# Table 1 of the paper: (expansion, kernel, stride of the first block, channels, blocks).
_STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
_SMALL_IMAGE_STRIDES = (2, 1, 2, 2, 1, 2, 2)
_N_STEM, _N_HEAD = 32, 1280
_DROP_PATH = 0.2  # of the last block, rising linearly from 0: section 5 of the paper (stochastic depth)


def _silu() -> nn.Module:
    return nn.SiLU(inplace=True)


def efficientnet_b0(n_classes: int = 1000) -> nn.Sequential:
    """The paper's network, for images ``(n, 3, 224, 224)``."""
    layers: list[nn.Module] = [conv_norm(3, _N_STEM, 3, stride=2, activation=_silu)]
    n_all = sum(n_blocks for *_, n_blocks in _STAGES)
    n_in, index = _N_STEM, 0
    for expansion, kernel, first_stride, n_out, n_blocks in _STAGES:
        for block in range(n_blocks):
            n_expanded = expansion * n_in
            layers.append(
                InvertedBottleneck(
                    n_in,
                    n_expanded,
                    n_out,
                    kernel=kernel,
                    stride=first_stride if block == 0 else 1,
                    activation=_silu,
                    gate=SqueezeExcite(n_expanded, n_in // 4, _silu, nn.Sigmoid),
                    drop=_DROP_PATH * index / n_all,
                )
            )
            n_in, index = n_out, index + 1
    layers.append(conv_norm(n_in, _N_HEAD, activation=_silu))
    return nn.Sequential(*layers, pooled_classifier(_N_HEAD, n_classes, dropout=0.2))


def efficientnet_b0_cifar(n_classes: int = 10) -> nn.Sequential:
    """The form for images ``(n, 3, 32, 32)``: 3 x 3 kernels and ReLU throughout, gates after the projection.

    Channels and depths are the paper's; gates squeeze to a sixteenth; there is no wide last convolution.
    """
    layers: list[nn.Module] = [conv_norm(3, _N_STEM, 3)]
    n_in = _N_STEM
    for (expansion, _, _, n_out, n_blocks), first_stride in zip(_STAGES, _SMALL_IMAGE_STRIDES, strict=True):
        for block in range(n_blocks):
            gate = SqueezeExcite(n_out, n_out // 16, relu, nn.Sigmoid)
            stride = first_stride if block == 0 else 1
            layers.append(SmallImageBottleneck(n_in, n_out, expansion=expansion, stride=stride, gate=gate))
            n_in = n_out
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(n_in, n_classes))


def build_efficientnet_b0_imagenet(batch_size: int) -> TrainingJob:
    """EfficientNet-B0 on ImageNet with SGD."""
    return classification_job(batch_size, IMAGENET, efficientnet_b0)


def build_efficientnet_b0_cifar10(batch_size: int) -> TrainingJob:
    """EfficientNet-B0 for small images on CIFAR-10 with SGD; its last batch norm sees one pixel, hence a batch of 2."""
    return classification_job(batch_size, CIFAR10, efficientnet_b0_cifar, smallest_batch=2)
