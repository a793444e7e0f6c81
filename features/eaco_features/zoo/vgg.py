"""VGG (Simonyan and Zisserman 2015, arXiv 1409.1556), and its usual form for 32 x 32 images."""

from __future__ import annotations

from torch import nn

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._common import CIFAR10, IMAGENET, classification_job, relu

# Table 1 of the paper, columns A and D: (convolutions, channels) of each stage; a max pool ends a stage.
_STAGES_11 = ((1, 64), (1, 128), (2, 256), (2, 512), (2, 512))
_STAGES_16 = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))
Stages = tuple[tuple[int, int], ...]


def _features(stages: Stages, *, norm: bool) -> list[nn.Module]:
    layers: list[nn.Module] = []
    n_in = 3
    for n_convs, n_out in stages:
        for _ in range(n_convs):
            layers.append(nn.Conv2d(n_in, n_out, 3, padding=1))
            if norm:
                layers.append(nn.BatchNorm2d(n_out))
            layers.append(relu())
            n_in = n_out
        layers.append(nn.MaxPool2d(2))
    return layers


def vgg(stages: Stages, n_classes: int = 1000) -> nn.Sequential:
    """The paper's network, without batch norm, for images ``(n, 3, 224, 224)``."""
    return nn.Sequential(
        *_features(stages, norm=False),
        *(nn.AdaptiveAvgPool2d(7), nn.Flatten()),
        *(nn.Linear(512 * 7 * 7, 4096), relu(), nn.Dropout(0.5)),
        *(nn.Linear(4096, 4096), relu(), nn.Dropout(0.5)),
        nn.Linear(4096, n_classes),
    )


def vgg11_cifar(n_classes: int = 10) -> nn.Sequential:
    """VGG-11's convolutions with batch norm and one linear layer, for images ``(n, 3, 32, 32)``; as Lucid's job."""
    return nn.Sequential(*_features(_STAGES_11, norm=True), nn.Flatten(), nn.Linear(512, n_classes))


def build_vgg11_imagenet(batch_size: int) -> TrainingJob:
    """VGG-11 on ImageNet with SGD."""
    return classification_job(batch_size, IMAGENET, lambda: vgg(_STAGES_11))


def build_vgg16_imagenet(batch_size: int) -> TrainingJob:
    """VGG-16 on ImageNet with SGD."""
    return classification_job(batch_size, IMAGENET, lambda: vgg(_STAGES_16))


def build_vgg11_cifar10(batch_size: int) -> TrainingJob:
    """VGG-11 with batch norm on CIFAR-10 with SGD."""
    return classification_job(batch_size, CIFAR10, vgg11_cifar)
