"""DCGAN (Radford et al. 2016, arXiv 1511.06434) for 64 x 64 images: a step trains discriminator, then generator."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._common import check_batch_size, descend, gan_adam, relu

_N_LATENT = 100
_WIDTHS = (64, 128, 256, 512)  # from the image inwards
_IMAGE_SHAPE = (3, 64, 64)


def _leaky() -> nn.Module:
    return nn.LeakyReLU(0.2, inplace=True)


def generator() -> nn.Sequential:
    """Latent vectors ``(n, 100, 1, 1)`` to images ``(n, 3, 64, 64)`` in [-1, 1]."""
    layers: list[nn.Module] = [nn.ConvTranspose2d(_N_LATENT, _WIDTHS[-1], 4, bias=False)]
    for n_in, n_out in pairwise(reversed(_WIDTHS)):
        layers += [nn.BatchNorm2d(n_in), relu(), nn.ConvTranspose2d(n_in, n_out, 4, 2, 1, bias=False)]
    layers += [nn.BatchNorm2d(_WIDTHS[0]), relu(), nn.ConvTranspose2d(_WIDTHS[0], 3, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers)


def discriminator() -> nn.Sequential:
    """Images ``(n, 3, 64, 64)`` to one logit each ``(n,)``."""
    layers: list[nn.Module] = [nn.Conv2d(3, _WIDTHS[0], 4, 2, 1, bias=False), _leaky()]
    for n_in, n_out in pairwise(_WIDTHS):
        layers += [nn.Conv2d(n_in, n_out, 4, 2, 1, bias=False), nn.BatchNorm2d(n_out), _leaky()]
    layers += [nn.Conv2d(_WIDTHS[-1], 1, 4, bias=False), nn.Flatten(0)]
    return nn.Sequential(*layers)


def build_dcgan_lsun(batch_size: int) -> TrainingJob:
    """DCGAN on LSUN with two Adam optimizers; ``step`` returns the generator's loss.

    The discriminator learns from a real and a generated batch, then the generator from the discriminator's answer.
    """
    check_batch_size(batch_size)
    generate, discriminate = generator(), discriminator()
    optimizer_g, optimizer_d = gan_adam(generate.parameters()), gan_adam(discriminate.parameters())
    real = torch.rand(batch_size, *_IMAGE_SHAPE) * 2 - 1
    is_real, is_fake = torch.ones(batch_size), torch.zeros(batch_size)

    def loss_of(images: Tensor, truth: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(discriminate(images), truth)

    def step() -> Tensor:
        fake: Tensor = generate(torch.randn(batch_size, _N_LATENT, 1, 1))
        descend(optimizer_d, loss_of(real, is_real) + loss_of(fake.detach(), is_fake))
        loss_g = loss_of(fake, is_real)
        descend(optimizer_g, loss_g)
        return loss_g.detach()

    return TrainingJob(step=step, modules=(generate, discriminate), optimizers=(optimizer_g, optimizer_d))
