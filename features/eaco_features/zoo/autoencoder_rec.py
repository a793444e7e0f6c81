"""Denoising autoencoder that recommends films of MovieLens-20M, logistic loss, Adam: Gavel's ``Recommendation``.

One hidden layer of 200 tanh units between all films and all films, half of the input dropped. One sample is one
user's row of watched films. The measured program trains on the films that occur in the batch only; which those are
depends on the data, so all films are taken here: an upper bound, the closer the larger the batch (512 to 8,192 users).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._sequences import checked_batch_size, descend

ITEMS = 20_108
"""Films that remain after the usual filtering of MovieLens-20M (Liang et al. 2018, table 1)."""

HIDDEN = 200
WATCHED_SHARE = 0.0036
"""Share of (user, film) cells that are interactions (Liang et al. 2018, table 1: 0.36 %)."""


class Autoencoder(nn.Module):
    """``(batch, items)`` rows of 0 and 1 -> ``(batch, items)`` logits."""

    def __init__(self, items: int, hidden: int, noise: float) -> None:
        super().__init__()
        self.noise = nn.Dropout(noise)
        self.encoder = nn.Linear(items, hidden)
        self.decoder = nn.Linear(hidden, items)

    def forward(self, watched: Tensor) -> Tensor:
        logits: Tensor = self.decoder(torch.tanh(self.encoder(self.noise(watched))))
        return logits


def build_autoencoder_rec(batch_size: int) -> TrainingJob:
    """The job at this many users a step; Adam at 1e-3 with weight decay 2e-5.

    Raises:
        InputError: the batch size is not positive.
    """
    checked_batch_size(batch_size)
    model = Autoencoder(ITEMS, HIDDEN, noise=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=2e-5)
    watched = (torch.rand(batch_size, ITEMS) < WATCHED_SHARE).float()

    def step() -> Tensor:
        loss = functional.binary_cross_entropy_with_logits(model(watched), watched, reduction="sum") / batch_size
        return descend(loss, optimizer)

    return TrainingJob(step=step, modules=(model,), optimizers=(optimizer,))
