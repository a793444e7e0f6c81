"""MobileNetV2 (Sandler et al. 2018, arXiv 1801.04381), and its usual form for 32 x 32 images."""

from __future__ import annotations

from torch import nn

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._common import (
    CIFAR10,
    IMAGENET,
    InvertedBottleneck,
    SmallImageBottleneck,
    classification_job,
    conv_norm,
    pooled_classifier,
)

# Table 2 of the paper: (expansion, channels, blocks, stride of the first block).
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
_N_STEM, _N_HEAD = 32, 1280


def _relu6() -> nn.Module:
    return nn.ReLU6(inplace=True)


def mobilenetv2(n_classes: int = 1000) -> nn.Sequential:
    """The paper's network, for images ``(n, 3, 224, 224)``."""
    layers: list[nn.Module] = [conv_norm(3, _N_STEM, 3, stride=2, activation=_relu6)]
    n_in = _N_STEM
    for expansion, n_out, n_blocks, first_stride in _STAGES:
        for block in range(n_blocks):
            stride = first_stride if block == 0 else 1
            layers.append(InvertedBottleneck(n_in, expansion * n_in, n_out, kernel=3, stride=stride, activation=_relu6))
            n_in = n_out
    layers.append(conv_norm(n_in, _N_HEAD, activation=_relu6))
    return nn.Sequential(*layers, pooled_classifier(_N_HEAD, n_classes, dropout=0.2))


def mobilenetv2_cifar(n_classes: int = 10) -> nn.Sequential:
    """The form for images ``(n, 3, 32, 32)``: stem and second stage keep the size; as Lucid's job."""
    layers: list[nn.Module] = [conv_norm(3, _N_STEM, 3)]
    n_in = _N_STEM
    for stage, (expansion, n_out, n_blocks, first_stride) in enumerate(_STAGES):
        for block in range(n_blocks):
            stride = first_stride if block == 0 and stage != 1 else 1
            layers.append(SmallImageBottleneck(n_in, n_out, expansion=expansion, stride=stride))
            n_in = n_out
    return nn.Sequential(*layers, conv_norm(n_in, _N_HEAD), pooled_classifier(_N_HEAD, n_classes))


def build_mobilenetv2_imagenet(batch_size: int) -> TrainingJob:
    """MobileNetV2 on ImageNet with SGD."""
    return classification_job(batch_size, IMAGENET, mobilenetv2)


def build_mobilenetv2_cifar10(batch_size: int) -> TrainingJob:
    """MobileNetV2 for small images on CIFAR-10 with SGD."""
    return classification_job(batch_size, CIFAR10, mobilenetv2_cifar)
