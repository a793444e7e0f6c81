"""Neural matrix factorisation (He et al. 2017) on MovieLens-1M, binary cross entropy, Adam.

As the program that Lucid and Zeus run: 32 factors, three layers (256, 128, 64 -> 32) beside the matrix factorisation,
four negatives sampled for each rating. One sample is one (user, item, label) triple.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._sequences import checked_batch_size, descend

USERS = 6_040
ITEMS = 3_706
"""Users and rated films of MovieLens-1M (He et al. 2017, table 1)."""

FACTORS = 32
LAYERS = 3


class NeuMf(nn.Module):
    """``(batch,)`` user and item ids -> ``(batch,)`` logits."""

    def __init__(self, users: int, items: int, factors: int, layers: int) -> None:
        super().__init__()
        wide = factors * 2 ** (layers - 1)
        self.user_factors, self.item_factors = nn.Embedding(users, factors), nn.Embedding(items, factors)
        self.user_wide, self.item_wide = nn.Embedding(users, wide), nn.Embedding(items, wide)
        widths = [2 * wide // 2**depth for depth in range(layers + 1)]
        self.tower = nn.Sequential(
            *(part for inputs, outputs in pairwise(widths) for part in (nn.Linear(inputs, outputs), nn.ReLU()))
        )
        self.predict = nn.Linear(2 * factors, 1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        product = self.user_factors(users) * self.item_factors(items)
        tower = self.tower(torch.cat((self.user_wide(users), self.item_wide(items)), dim=-1))
        logits: Tensor = self.predict(torch.cat((product, tower), dim=-1)).squeeze(-1)
        return logits


def build_neumf(batch_size: int) -> TrainingJob:
    """The job at this many (user, item) pairs a step.

    Raises:
        InputError: the batch size is not positive.
    """
    checked_batch_size(batch_size)
    model = NeuMf(USERS, ITEMS, FACTORS, LAYERS)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    users, items = torch.randint(USERS, (batch_size,)), torch.randint(ITEMS, (batch_size,))
    labels = torch.randint(2, (batch_size,)).float()

    def step() -> Tensor:
        return descend(functional.binary_cross_entropy_with_logits(model(users, items), labels), optimizer)

    return TrainingJob(step=step, modules=(model,), optimizers=(optimizer,))
