"""DLRM (Naumov et al. 2019) on the Criteo Kaggle data, binary cross entropy, SGD with sparse embedding gradients.

26 embedding tables of width 16 (``EmbeddingBag``), bottom network 13-512-256-64-16, pairwise dot products, top network
367-512-256-1: the configuration published with the model. The gradient of a table is a sparse tensor of the rows
that the batch gathered.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._sequences import checked_batch_size, descend, mlp

TABLE_ROWS = (
    *(1_460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5_683, 8_351_593, 3_194),
    *(27, 14_992, 5_461_306, 10, 5_652, 2_173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572),
)
"""Distinct values of Criteo Kaggle's 26 categorical columns, as the published preprocessing counts them."""

DENSE = 13
WIDTH = 16


class Dlrm(nn.Module):
    """``(batch, 13)`` dense features and ``(26, batch)`` row ids -> ``(batch,)`` logits."""

    pairs: Tensor

    def __init__(self, table_rows: tuple[int, ...]) -> None:
        super().__init__()
        features = len(table_rows) + 1
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, WIDTH, mode="sum", sparse=True) for rows in table_rows)
        self.bottom = mlp((DENSE, 512, 256, 64, WIDTH), nn.ReLU, last=nn.ReLU())
        self.top = mlp((WIDTH + features * (features - 1) // 2, 512, 256, 1), nn.ReLU)
        pairs = [row * features + column for row in range(features) for column in range(row)]
        self.register_buffer("pairs", torch.tensor(pairs))

    def forward(self, dense: Tensor, rows: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        gathered = [table(ids[:, None]) for table, ids in zip(self.tables, rows.unbind(0), strict=True)]
        features = torch.stack((bottom, *gathered), dim=1)
        products = torch.bmm(features, features.transpose(1, 2)).flatten(1).index_select(1, self.pairs)
        logits: Tensor = self.top(torch.cat((bottom, products), dim=1)).squeeze(-1)
        return logits


def build_dlrm(batch_size: int, table_rows: tuple[int, ...] = TABLE_ROWS) -> TrainingJob:
    """The job at this many impressions a step. The full tables hold 2.2 GB.

    Raises:
        InputError: the batch size is not positive.
    """
    checked_batch_size(batch_size)
    model = Dlrm(table_rows)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dense = torch.rand(batch_size, DENSE)
    rows = torch.stack([torch.randint(count, (batch_size,)) for count in table_rows])
    clicked = torch.randint(2, (batch_size,)).float()

    def step() -> Tensor:
        return descend(functional.binary_cross_entropy_with_logits(model(dense, rows), clicked), optimizer)

    return TrainingJob(step=step, modules=(model,), optimizers=(optimizer,))
