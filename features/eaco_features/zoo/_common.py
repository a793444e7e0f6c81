"""Blocks, tasks with synthetic data and optimizers that the vision jobs share.

Inputs are held by the job (a data loader makes them in real training, not the GPU), made on the default device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adam, AdamW, Optimizer

from eaco_datasets.errors import InputError
from eaco_features.graphs.job import TrainingJob

MakeModule = Callable[[], nn.Module]
MakeOptimizer = Callable[[Iterator[nn.Parameter]], Optimizer]


@dataclass(frozen=True)
class ClassificationTask:
    """Shape ``(channels, height, width)`` or ``(channels, points)`` of one sample, and the number of classes."""

    sample_shape: tuple[int, ...]
    n_classes: int


IMAGENET = ClassificationTask((3, 224, 224), 1000)
CIFAR10 = ClassificationTask((3, 32, 32), 10)
CIFAR100 = ClassificationTask((3, 32, 32), 100)


def check_batch_size(batch_size: int, *, smallest: int = 1) -> None:
    """Refuse a batch that cannot be trained on: batch norm over one value per channel has no variance.

    Raises:
        InputError: ``batch_size`` is below ``smallest``.
    """
    if batch_size < smallest:
        raise InputError(f"batch size {batch_size}", where="batch_size", expected=f"at least {smallest}")


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy of class scores ``(n, n_classes)`` and labels ``(n,)``."""
    return functional.cross_entropy(scores, labels)


def sgd(parameters: Iterator[nn.Parameter]) -> Optimizer:
    """SGD with momentum 0.9 and weight decay, as convolutional classifiers are usually trained."""
    return SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4)


def plain_sgd(parameters: Iterator[nn.Parameter]) -> Optimizer:
    """SGD without momentum or weight decay, as Lucid's ImageNet jobs (ASPLOS'23 artifact) are trained."""
    return SGD(parameters, lr=0.01)


def adam(parameters: Iterator[nn.Parameter]) -> Optimizer:
    """Adam with its usual rate."""
    return Adam(parameters, lr=1e-3)


def gan_adam(parameters: Iterator[nn.Parameter]) -> Optimizer:
    """Adam as adversarial networks are trained (Radford et al. 2016, section 4: rate 0.0002, first moment 0.5)."""
    return Adam(parameters, lr=2e-4, betas=(0.5, 0.999))


def adamw(parameters: Iterator[nn.Parameter]) -> Optimizer:
    """AdamW as vision transformers are trained (Liu et al. 2021, section 4.1: rate 0.001, decay 0.05)."""
    return AdamW(parameters, lr=1e-3, weight_decay=0.05)


def classification_job(
    batch_size: int,
    task: ClassificationTask,
    make_net: MakeModule,
    make_optimizer: MakeOptimizer = sgd,
    *,
    loss_of: Callable[..., Tensor] = cross_entropy,
    smallest_batch: int = 1,
) -> TrainingJob:
    """A job that trains one classifier; ``step`` returns the loss.

    Args:
        batch_size: samples in a step.
        task: what a sample is.
        make_net: builds the network; called once.
        make_optimizer: builds the optimizer of the network's parameters.
        loss_of: the loss, from what the network returns and labels ``(batch_size,)``.
        smallest_batch: the smallest batch the network can be trained on.

    Raises:
        InputError: ``batch_size`` is below ``smallest_batch``.
    """
    check_batch_size(batch_size, smallest=smallest_batch)
    net = make_net().train()
    optimizer = make_optimizer(net.parameters())
    samples = torch.randn(batch_size, *task.sample_shape)
    labels = torch.randint(0, task.n_classes, (batch_size,))

    def step() -> Tensor:
        loss = loss_of(net(samples), labels)
        descend(optimizer, loss)
        return loss.detach()

    return TrainingJob(step=step, modules=(net,), optimizers=(optimizer,))


def descend(optimizer: Optimizer, loss: Tensor) -> None:
    """Clear gradients, back-propagate ``loss``, step the optimizer."""
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()


def relu() -> nn.Module:
    """ReLU in place, as the networks here use it."""
    return nn.ReLU(inplace=True)


def conv_norm(
    n_in: int,
    n_out: int,
    kernel: int = 1,
    *,
    stride: int = 1,
    groups: int = 1,
    bias: bool = False,
    activation: MakeModule | None = relu,
) -> nn.Sequential:
    """Convolution that keeps the size (but for its stride), batch norm and, unless None, an activation."""
    layers: list[nn.Module] = [
        nn.Conv2d(n_in, n_out, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=bias),
        nn.BatchNorm2d(n_out),
    ]
    if activation is not None:
        layers.append(activation())
    return nn.Sequential(*layers)


def pooled_classifier(n_features: int, n_classes: int, *, dropout: float = 0.0) -> nn.Sequential:
    """Mean over the image, dropout when asked for, and one linear layer."""
    layers: list[nn.Module] = [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    if dropout > 0.0:
        layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(n_features, n_classes))


class SqueezeExcite(nn.Module):
    """Scale each channel by a gate computed from all channels' means (Hu et al. 2018, arXiv 1709.01507)."""

    def __init__(self, n_channels: int, n_squeezed: int, activation: MakeModule, gate: MakeModule) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(n_channels, n_squeezed, 1),
            activation(),
            nn.Conv2d(n_squeezed, n_channels, 1),
            gate(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """``(n, n_channels, h, w)`` to the same shape."""
        scaled: Tensor = x * self.gate(x)
        return scaled


class DropPath(nn.Module):
    """Drop a residual branch for a random part of the samples (Huang et al. 2016, arXiv 1603.09382)."""

    def __init__(self, drop: float) -> None:
        super().__init__()
        self.drop = drop

    def forward(self, x: Tensor) -> Tensor:
        """``(n, ...)`` to the same shape, whole samples zeroed while training."""
        if not self.training or self.drop <= 0.0:
            return x
        kept = 1.0 - self.drop
        mask = torch.empty(x.shape[:1] + (1,) * (x.dim() - 1), dtype=x.dtype, device=x.device)
        return x * mask.bernoulli_(kept).div_(kept)


class InvertedBottleneck(nn.Module):
    """Expand, filter each channel, gate when asked for, project; residual where shapes allow.

    Sandler et al. 2018 (arXiv 1801.04381), figure 4; with a gate as in Howard et al. 2019 (arXiv 1905.02244).
    """

    def __init__(
        self,
        n_in: int,
        n_expanded: int,
        n_out: int,
        *,
        kernel: int,
        stride: int,
        activation: MakeModule,
        gate: nn.Module | None = None,
        drop: float = 0.0,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if n_expanded != n_in:
            layers.append(conv_norm(n_in, n_expanded, activation=activation))
        layers.append(
            conv_norm(n_expanded, n_expanded, kernel, stride=stride, groups=n_expanded, activation=activation)
        )
        if gate is not None:
            layers.append(gate)
        layers.append(conv_norm(n_expanded, n_out, activation=None))
        self.body = nn.Sequential(*layers)
        self.residual = stride == 1 and n_in == n_out
        self.drop_path = DropPath(drop)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, n_in, h, w)`` to ``(n, n_out, h / stride, w / stride)``."""
        y: Tensor = self.body(x)
        return x + self.drop_path(y) if self.residual else y


class SmallImageBottleneck(nn.Module):
    """Inverted bottleneck of the usual CIFAR ports: always expands, projects its shortcut, gates after projecting.

    This is the form that Lucid's CIFAR jobs (ASPLOS'23 artifact) measured.
    """

    def __init__(self, n_in: int, n_out: int, *, expansion: int, stride: int, gate: nn.Module | None = None) -> None:
        super().__init__()
        n_expanded = expansion * n_in
        self.body = nn.Sequential(
            conv_norm(n_in, n_expanded),
            conv_norm(n_expanded, n_expanded, 3, stride=stride, groups=n_expanded),
            conv_norm(n_expanded, n_out, activation=None),
            nn.Identity() if gate is None else gate,
        )
        self.shortcut: nn.Module | None = None
        if stride == 1:
            self.shortcut = nn.Identity() if n_in == n_out else conv_norm(n_in, n_out, activation=None)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, n_in, h, w)`` to ``(n, n_out, h / stride, w / stride)``."""
        y: Tensor = self.body(x)
        return y if self.shortcut is None else y + self.shortcut(x)
