"""Residual networks (He et al. 2016, arXiv 1512.03385); a bottleneck strides in its 3 x 3 convolution ("v1.5")."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._common import CIFAR10, IMAGENET, classification_job, conv_norm, pooled_classifier

_BOTTLENECK_WIDENING = 4  # table 1 of the paper: 64 channels inside, 256 outside
_STAGE_CHANNELS = (64, 128, 256, 512)


class Residual(nn.Module):
    """``relu(body(x) + shortcut(x))``; the shortcut is a strided projection where shapes differ."""

    def __init__(self, n_in: int, n_inside: int, *, stride: int, bottleneck: bool) -> None:
        super().__init__()
        n_out = n_inside * (_BOTTLENECK_WIDENING if bottleneck else 1)
        if bottleneck:
            self.body = nn.Sequential(
                conv_norm(n_in, n_inside),
                conv_norm(n_inside, n_inside, 3, stride=stride),
                conv_norm(n_inside, n_out, activation=None),
            )
        else:
            self.body = nn.Sequential(
                conv_norm(n_in, n_inside, 3, stride=stride),
                conv_norm(n_inside, n_out, 3, activation=None),
            )
        same = stride == 1 and n_in == n_out
        self.shortcut = nn.Identity() if same else conv_norm(n_in, n_out, stride=stride, activation=None)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, n_in, h, w)`` to ``(n, n_out, h / stride, w / stride)``."""
        y: Tensor = self.body(x)
        y += self.shortcut(x)
        return functional.relu(y, inplace=True)


def resnet(blocks: tuple[int, int, int, int], n_classes: int, *, bottleneck: bool, small_images: bool) -> nn.Sequential:
    """A residual network of four stages.

    Args:
        blocks: residual blocks of each stage.
        n_classes: outputs.
        bottleneck: three-layer blocks (ResNet-50 and deeper) instead of two-layer ones.
        small_images: a 3 x 3 stem without stride or pool, for images of 32 x 32.
    """
    stem: list[nn.Module] = [conv_norm(3, 64, 3)]
    if not small_images:
        stem = [conv_norm(3, 64, 7, stride=2), nn.MaxPool2d(3, stride=2, padding=1)]
    layers = stem
    n_in = 64
    for stage, (n_blocks, n_inside) in enumerate(zip(blocks, _STAGE_CHANNELS, strict=True)):
        for block in range(n_blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Residual(n_in, n_inside, stride=stride, bottleneck=bottleneck))
            n_in = n_inside * (_BOTTLENECK_WIDENING if bottleneck else 1)
    return nn.Sequential(*layers, pooled_classifier(n_in, n_classes))


def build_resnet18_imagenet(batch_size: int) -> TrainingJob:
    """ResNet-18 on ImageNet with SGD."""
    return classification_job(
        batch_size, IMAGENET, lambda: resnet((2, 2, 2, 2), 1000, bottleneck=False, small_images=False)
    )


def build_resnet18_cifar10(batch_size: int) -> TrainingJob:
    """ResNet-18 with a stem for small images on CIFAR-10 with SGD; the form that Lucid and Gavel measured."""
    return classification_job(
        batch_size, CIFAR10, lambda: resnet((2, 2, 2, 2), 10, bottleneck=False, small_images=True)
    )


def build_resnet50_imagenet(batch_size: int) -> TrainingJob:
    """ResNet-50 on ImageNet with SGD."""
    return classification_job(
        batch_size, IMAGENET, lambda: resnet((3, 4, 6, 3), 1000, bottleneck=True, small_images=False)
    )
