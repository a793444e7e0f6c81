"""CycleGAN (Zhu et al. 2017, arXiv 1703.10593): two generators and two discriminators in one step.

Generators upsample by resizing and convolving, and discriminators halve the image four times, as in the port that
Gavel measured; layer widths, kernels and so the parameter counts are the paper's (section 7.2).
"""

from __future__ import annotations

from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn import functional

from eaco_datasets.errors import InputError
from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._common import check_batch_size, descend, gan_adam, relu

_N_RESIDUAL = 9
_CYCLE_WEIGHT, _IDENTITY_WEIGHT = 10.0, 5.0  # section 5.2 of the paper: lambda, and half of it for the identity loss
_SMALLEST_IMAGE_PX = 32


class ResidualBlock(nn.Module):
    """Two reflected 3 x 3 convolutions with instance norm around a shortcut."""

    def __init__(self, n_channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.ReflectionPad2d(1), nn.Conv2d(n_channels, n_channels, 3), nn.InstanceNorm2d(n_channels), relu()),
            *(nn.ReflectionPad2d(1), nn.Conv2d(n_channels, n_channels, 3), nn.InstanceNorm2d(n_channels)),
        )

    def forward(self, x: Tensor) -> Tensor:
        """``(n, n_channels, h, w)`` to the same shape."""
        y: Tensor = x + self.body(x)
        return y


def generator() -> nn.Sequential:
    """Images ``(n, 3, h, w)`` to images of the same shape; ``h`` and ``w`` are multiples of 4."""

    def sized(n_out: int, *layers: nn.Module) -> tuple[nn.Module, ...]:
        return (*layers, nn.InstanceNorm2d(n_out), relu())

    return nn.Sequential(
        *sized(64, nn.ReflectionPad2d(3), nn.Conv2d(3, 64, 7)),
        *sized(128, nn.Conv2d(64, 128, 3, stride=2, padding=1)),
        *sized(256, nn.Conv2d(128, 256, 3, stride=2, padding=1)),
        *(ResidualBlock(256) for _ in range(_N_RESIDUAL)),
        *sized(128, nn.Upsample(scale_factor=2), nn.Conv2d(256, 128, 3, padding=1)),
        *sized(64, nn.Upsample(scale_factor=2), nn.Conv2d(128, 64, 3, padding=1)),
        *(nn.ReflectionPad2d(3), nn.Conv2d(64, 3, 7), nn.Tanh()),
    )


def discriminator() -> nn.Sequential:
    """Images ``(n, 3, h, w)`` to one score for each patch ``(n, 1, h / 16, w / 16)``."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 4, stride=2, padding=1), nn.LeakyReLU(0.2, inplace=True)]
    for n_out in (128, 256, 512):
        layers += [nn.Conv2d(n_out // 2, n_out, 4, stride=2, padding=1), nn.InstanceNorm2d(n_out)]
        layers.append(nn.LeakyReLU(0.2, inplace=True))
    return nn.Sequential(*layers, nn.ZeroPad2d((1, 0, 1, 0)), nn.Conv2d(512, 1, 4, padding=1))


class _Domain:
    """One side of the translation: real images, the generator that makes such images, and their discriminator."""

    def __init__(self, batch_size: int, image_size_px: int) -> None:
        self.real = torch.rand(batch_size, 3, image_size_px, image_size_px) * 2 - 1
        self.make, self.judge = generator(), discriminator()
        self.optimizer = gan_adam(self.judge.parameters())

    def adversarial_loss(self, images: Tensor, truth: float) -> Tensor:
        """Least squares against ``truth`` (1 real, 0 generated) at every patch."""
        scores: Tensor = self.judge(images)
        return functional.mse_loss(scores, torch.full_like(scores, truth))

    def train_judge(self, fake: Tensor) -> None:
        """One step of the discriminator on the real and the generated images."""
        loss = self.adversarial_loss(self.real, 1.0) + self.adversarial_loss(fake.detach(), 0.0)
        descend(self.optimizer, loss / 2)


def _generators_loss(a: _Domain, b: _Domain, fake_a: Tensor, fake_b: Tensor) -> Tensor:
    identity = functional.l1_loss(a.make(a.real), a.real) + functional.l1_loss(b.make(b.real), b.real)
    adversarial = a.adversarial_loss(fake_a, 1.0) + b.adversarial_loss(fake_b, 1.0)
    cycle = functional.l1_loss(a.make(fake_b), a.real) + functional.l1_loss(b.make(fake_a), b.real)
    total: Tensor = (adversarial + _CYCLE_WEIGHT * cycle + _IDENTITY_WEIGHT * identity) / 2
    return total


def cyclegan_job(batch_size: int, image_size_px: int) -> TrainingJob:
    """CycleGAN on square images with three Adam optimizers; ``step`` returns the generators' loss.

    A step consumes ``batch_size`` images of each side.

    Raises:
        InputError: no positive batch size, or a size that is no multiple of 16 or is below 32.
    """
    check_batch_size(batch_size)
    if image_size_px < _SMALLEST_IMAGE_PX or image_size_px % 16:
        raise InputError(f"image size {image_size_px}", where="image_size_px", expected="a multiple of 16, at least 32")
    a, b = _Domain(batch_size, image_size_px), _Domain(batch_size, image_size_px)
    optimizer = gan_adam(chain(a.make.parameters(), b.make.parameters()))

    def step() -> Tensor:
        fake_a, fake_b = a.make(b.real), b.make(a.real)
        loss = _generators_loss(a, b, fake_a, fake_b)
        descend(optimizer, loss)
        a.train_judge(fake_a)
        b.train_judge(fake_b)
        return loss.detach()

    return TrainingJob(
        step=step,
        modules=(a.make, b.make, a.judge, b.judge),
        optimizers=(optimizer, a.optimizer, b.optimizer),
    )


def build_cyclegan_monet2photo(batch_size: int) -> TrainingJob:
    """CycleGAN on monet2photo at 256 x 256 with Adam."""
    return cyclegan_job(batch_size, 256)
