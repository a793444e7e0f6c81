"""PointNet classifier (Qi et al. 2017, arXiv 1612.00593): one perceptron for every point, then the maximum over points.

Point clouds are ``(n, channels, points)``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._common import ClassificationTask, adam, classification_job, relu

_SHAPENET_PART = ClassificationTask((3, 2500), 16)
_GLOBAL_WIDTHS = (64, 128, 1024)  # section C of the paper's supplement
_DECIDING_WIDTHS = (512, 256)


def _per_point(n_in: int, widths: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n_out in widths:
        layers += [nn.Conv1d(n_in, n_out, 1), nn.BatchNorm1d(n_out), relu()]
        n_in = n_out
    return nn.Sequential(*layers)


class MaxOverPoints(nn.Module):
    """The maximum of each channel."""

    def forward(self, x: Tensor) -> Tensor:
        """``(n, channels, points)`` to ``(n, channels)``."""
        return x.amax(dim=2)


def _decide(n_out: int, *, dropout: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    n_in = _GLOBAL_WIDTHS[-1]
    for width in _DECIDING_WIDTHS:
        layers += [nn.Linear(n_in, width), nn.BatchNorm1d(width), relu()]
        n_in = width
    if dropout > 0.0:
        layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(n_in, n_out))


class Align(nn.Module):
    """Transform the channels by a matrix computed from the whole cloud ("T-net")."""

    def __init__(self, n_channels: int) -> None:
        super().__init__()
        self.n_channels = n_channels
        self.to_matrix = nn.Sequential(
            _per_point(n_channels, _GLOBAL_WIDTHS), MaxOverPoints(), _decide(n_channels**2, dropout=0.0)
        )

    def forward(self, x: Tensor) -> Tensor:
        """``(n, n_channels, points)`` to the same shape."""
        matrix: Tensor = self.to_matrix(x).view(-1, self.n_channels, self.n_channels)
        matrix = matrix + torch.eye(self.n_channels, dtype=matrix.dtype, device=matrix.device)
        return torch.bmm(matrix.transpose(1, 2), x)


def pointnet(n_classes: int, *, align_features: bool) -> nn.Sequential:
    """The classifier, for clouds ``(n, 3, points)``.

    ``align_features`` adds the paper's second layer of 64 channels and its 64 x 64 transform; Lucid's job has neither.
    """
    local: list[nn.Module] = [Align(3), _per_point(3, (64,))]
    widths: tuple[int, ...] = _GLOBAL_WIDTHS[1:]
    if align_features:
        local += [_per_point(64, (64,)), Align(64)]
        widths = _GLOBAL_WIDTHS
    return nn.Sequential(*local, _per_point(64, widths), MaxOverPoints(), _decide(n_classes, dropout=0.3))


def build_pointnet_shapenet(batch_size: int) -> TrainingJob:
    """PointNet on ShapeNet's 16 part categories, 2,500 points each, with Adam; batch norm needs a batch of 2."""
    return classification_job(
        batch_size, _SHAPENET_PART, lambda: pointnet(16, align_features=False), adam, smallest_batch=2
    )
