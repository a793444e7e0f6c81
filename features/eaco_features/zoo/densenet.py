"""DenseNet-121 (Huang et al. 2017, arXiv 1608.06993)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._common import IMAGENET, classification_job, conv_norm, pooled_classifier, relu

_GROWTH = 32
_BLOCKS = (6, 12, 24, 16)  # table 1 of the paper
_INSIDE = 4 * _GROWTH  # channels between a layer's two convolutions


class DenseLayer(nn.Module):
    """Appends ``_GROWTH`` channels computed from all channels so far."""

    def __init__(self, n_in: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.BatchNorm2d(n_in), relu(), nn.Conv2d(n_in, _INSIDE, 1, bias=False)),
            *(nn.BatchNorm2d(_INSIDE), relu(), nn.Conv2d(_INSIDE, _GROWTH, 3, padding=1, bias=False)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """``(n, n_in, h, w)`` to ``(n, n_in + growth, h, w)``."""
        return torch.cat((x, self.body(x)), dim=1)


def densenet121(n_classes: int = 1000) -> nn.Sequential:
    """The network, for images ``(n, 3, 224, 224)``."""
    n_channels = 2 * _GROWTH
    layers: list[nn.Module] = [conv_norm(3, n_channels, 7, stride=2), nn.MaxPool2d(3, stride=2, padding=1)]
    for index, n_layers in enumerate(_BLOCKS):
        if index > 0:
            halved = n_channels // 2
            layers += [nn.BatchNorm2d(n_channels), relu(), nn.Conv2d(n_channels, halved, 1, bias=False)]
            layers.append(nn.AvgPool2d(2))
            n_channels = halved
        for _ in range(n_layers):
            layers.append(DenseLayer(n_channels))
            n_channels += _GROWTH
    return nn.Sequential(*layers, nn.BatchNorm2d(n_channels), relu(), pooled_classifier(n_channels, n_classes))


def build_densenet121_imagenet(batch_size: int) -> TrainingJob:
    """DenseNet-121 on ImageNet with SGD."""
    return classification_job(batch_size, IMAGENET, densenet121)
