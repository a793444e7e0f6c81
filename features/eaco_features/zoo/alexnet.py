"""AlexNet in its one-column form (Krizhevsky 2014, arXiv 1404.5997)."""

from __future__ import annotations

from torch import nn

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._common import IMAGENET, classification_job, relu


def alexnet(n_classes: int = 1000) -> nn.Sequential:
    """The network, for images ``(n, 3, 224, 224)``."""

    def pool() -> nn.Module:
        return nn.MaxPool2d(3, stride=2)

    return nn.Sequential(
        *(nn.Conv2d(3, 64, 11, stride=4, padding=2), relu(), pool()),
        *(nn.Conv2d(64, 192, 5, padding=2), relu(), pool()),
        *(nn.Conv2d(192, 384, 3, padding=1), relu()),
        *(nn.Conv2d(384, 256, 3, padding=1), relu()),
        *(nn.Conv2d(256, 256, 3, padding=1), relu(), pool()),
        *(nn.AdaptiveAvgPool2d(6), nn.Flatten()),
        *(nn.Dropout(0.5), nn.Linear(256 * 6 * 6, 4096), relu()),
        *(nn.Dropout(0.5), nn.Linear(4096, 4096), relu()),
        nn.Linear(4096, n_classes),
    )


def build_alexnet_imagenet(batch_size: int) -> TrainingJob:
    """AlexNet on ImageNet with SGD."""
    return classification_job(batch_size, IMAGENET, alexnet)
