"""GoogLeNet (Szegedy et al. 2015, arXiv 1409.4842) with batch norm, as it is trained today.

The branch that the paper gives 5 x 5 kernels has 3 x 3 ones, as in the port whose counts are the usual reference.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._common import (
    IMAGENET,
    classification_job,
    conv_norm,
    cross_entropy,
    pooled_classifier,
    relu,
)

# Table 1 of the paper: 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection.
Widths = tuple[int, int, int, int, int, int]
_STAGE_3: tuple[Widths, ...] = ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64))
_STAGE_4: tuple[Widths, ...] = (
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
)
_STAGE_5: tuple[Widths, ...] = ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128))
_AUXILIARY_WEIGHT = 0.3  # section 5 of the paper


class Inception(nn.Module):
    """Four branches side by side, joined by channel (figure 2b of the paper)."""

    def __init__(self, n_in: int, widths: Widths) -> None:
        super().__init__()
        direct, reduce_a, out_a, reduce_b, out_b, pooled = widths
        self.branches = nn.ModuleList(
            (
                conv_norm(n_in, direct),
                nn.Sequential(conv_norm(n_in, reduce_a), conv_norm(reduce_a, out_a, 3)),
                nn.Sequential(conv_norm(n_in, reduce_b), conv_norm(reduce_b, out_b, 3)),
                nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), conv_norm(n_in, pooled)),
            )
        )
        self.n_out = direct + out_a + out_b + pooled

    def forward(self, x: Tensor) -> Tensor:
        """``(n, n_in, h, w)`` to ``(n, n_out, h, w)``."""
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def _inceptions(n_in: int, stage: tuple[Widths, ...]) -> list[Inception]:
    blocks: list[Inception] = []
    for widths in stage:
        blocks.append(Inception(n_in, widths))
        n_in = blocks[-1].n_out
    return blocks


def _auxiliary(n_in: int, n_classes: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.AdaptiveAvgPool2d(4), conv_norm(n_in, 128), nn.Flatten()),
        *(nn.Linear(2048, 1024), relu(), nn.Dropout(0.7), nn.Linear(1024, n_classes)),
    )


def _pool() -> nn.Module:
    return nn.MaxPool2d(3, stride=2, ceil_mode=True)


class GoogLeNet(nn.Module):
    """The network, for images ``(n, 3, 224, 224)``; two auxiliary classifiers help while training."""

    def __init__(self, n_classes: int = 1000) -> None:
        super().__init__()
        third = _inceptions(192, _STAGE_3)
        fourth = _inceptions(480, _STAGE_4)
        fifth = _inceptions(832, _STAGE_5)
        self.to_4a = nn.Sequential(
            *(conv_norm(3, 64, 7, stride=2), _pool(), conv_norm(64, 64), conv_norm(64, 192, 3), _pool()),
            *(*third, _pool(), fourth[0]),
        )
        self.to_4d = nn.Sequential(*fourth[1:4])
        self.to_end = nn.Sequential(fourth[4], nn.MaxPool2d(2, ceil_mode=True), *fifth)
        self.classifier = pooled_classifier(fifth[-1].n_out, n_classes, dropout=0.2)
        self.auxiliary_4a = _auxiliary(fourth[0].n_out, n_classes)
        self.auxiliary_4d = _auxiliary(fourth[3].n_out, n_classes)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Scores ``(n, n_classes)`` of the classifier, then, while training, of the two auxiliary ones."""
        at_4a: Tensor = self.to_4a(x)
        at_4d: Tensor = self.to_4d(at_4a)
        scores: Tensor = self.classifier(self.to_end(at_4d))
        return (scores, self.auxiliary_4a(at_4a), self.auxiliary_4d(at_4d)) if self.training else (scores,)


def _weighted_loss(scores: tuple[Tensor, ...], labels: Tensor) -> Tensor:
    main, *auxiliary = (cross_entropy(s, labels) for s in scores)
    return main + _AUXILIARY_WEIGHT * torch.stack(auxiliary).sum()


def build_googlenet_imagenet(batch_size: int) -> TrainingJob:
    """GoogLeNet with its auxiliary classifiers on ImageNet with SGD."""
    return classification_job(batch_size, IMAGENET, GoogLeNet, loss_of=_weighted_loss)
