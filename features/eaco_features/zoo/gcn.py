"""Graph convolutional network (Kipf and Welling 2017) on graphs of Cora's size, Adam.

Two layers with 16 hidden units over 2,708 papers with 1,433 word features and 5,278 citations. Neighbours are summed by
gathering and ``index_add``, as message-passing libraries do. The original trains on the whole graph, a batch of 1;
a larger batch is that many graphs side by side, as one with separate parts.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._sequences import checked_batch_size, descend

NODES = 2_708
FEATURES = 1_433
CLASSES = 7
CITATIONS = 5_278
"""Undirected links between different papers, each once; the paper's 5,429 counts some twice."""

LABELLED = 140
HIDDEN = 16
DROPOUT = 0.5


class GraphConvolution(nn.Module):
    """``A X W + b`` with the normalised adjacency A given as edges: sources, targets and weights ``(edges, 1)``."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor, sources: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        x = self.linear(x)
        messages = x.index_select(0, sources) * weights
        return torch.zeros_like(x).index_add(0, targets, messages) + self.bias


class Gcn(nn.Module):
    """``(nodes, features)`` -> ``(nodes, classes)`` logits."""

    def __init__(self) -> None:
        super().__init__()
        self.first = GraphConvolution(FEATURES, HIDDEN)
        self.second = GraphConvolution(HIDDEN, CLASSES)

    def forward(self, x: Tensor, sources: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        x = functional.dropout(x, DROPOUT, self.training)
        x = functional.relu(self.first(x, sources, targets, weights))
        x = functional.dropout(x, DROPOUT, self.training)
        logits: Tensor = self.second(x, sources, targets, weights)
        return logits


def build_gcn_cora(batch_size: int) -> TrainingJob:
    """The job at this many graphs a step; Adam at 0.01 with weight decay 5e-4.

    Raises:
        InputError: the batch size is not positive.
    """
    checked_batch_size(batch_size)
    model = Gcn()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    nodes = batch_size * NODES
    words = (torch.rand(nodes, FEATURES) < 0.0127).float()
    edges = _random_graphs(batch_size)
    labels = torch.randint(CLASSES, (batch_size, LABELLED))

    def step() -> Tensor:
        logits = model(words, *edges).view(batch_size, NODES, CLASSES)[:, :LABELLED]
        return descend(functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), optimizer)

    return TrainingJob(step=step, modules=(model,), optimizers=(optimizer,))


def _random_graphs(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sources, targets and symmetric weights ``1 / sqrt(degree degree)`` of random graphs with self-loops."""
    shift = torch.arange(count)[:, None] * NODES
    ends = torch.randint(NODES, (2, count, CITATIONS)) + shift
    loops = torch.arange(count * NODES)
    one, other = ends.flatten(1).unbind(0)
    sources, targets = torch.cat((one, other, loops)), torch.cat((other, one, loops))
    degree = torch.zeros(count * NODES).index_add(0, targets, torch.ones_like(targets, dtype=torch.float))
    scale = degree.rsqrt()
    return sources, targets, (scale[sources] * scale[targets])[:, None]
