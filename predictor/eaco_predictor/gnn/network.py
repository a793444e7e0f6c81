"""The network: an encoder of one job's graph, and a head over the jobs of a set that does not know their order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv, global_max_pool, global_mean_pool

from eaco_features.graphs.summary import GRAPH_FEATURES
from eaco_predictor.gnn.encode import N_NODE_FEATURES, EncodedGraph
from eaco_predictor.gnn.tasks import TASKS

WIDTH = 32
"""Width of layers and of a job's embedding (choice: some hundred jobs to learn from)."""
DROPOUT = 0.1


class Encoder(nn.Module):
    """Two rounds of GraphSAGE (Hamilton et al., 2017) over the coarse graph, pooled, with the graph's totals."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(N_NODE_FEATURES, WIDTH)
        self.rounds = nn.ModuleList([SAGEConv(WIDTH, WIDTH), SAGEConv(WIDTH, WIDTH)])
        self.leave = nn.Linear(2 * WIDTH + len(GRAPH_FEATURES), WIDTH)
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Embeddings ``(n_graphs, WIDTH)``."""
        x = torch.relu(self.enter(batch.nodes))
        for layer in self.rounds:
            x = x + torch.relu(layer(x, batch.edges))
        pooled = [global_mean_pool(x, batch.graph, batch.size), global_max_pool(x, batch.graph, batch.size)]
        embedding: Tensor = torch.tanh(self.leave(self.drop(torch.cat([*pooled, batch.totals], dim=1))))
        return embedding


class GraphBatch:
    """Several graphs as one: nodes and edges behind each other, ``graph`` ``(n_nodes,)`` says whose a node is."""

    def __init__(self, graphs: Sequence[EncodedGraph]) -> None:
        sizes = [len(graph.nodes) for graph in graphs]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        self.size = len(graphs)
        self.nodes = torch.from_numpy(np.concatenate([graph.nodes for graph in graphs]))
        shifted = [graph.edges + start for graph, start in zip(graphs, starts, strict=True)]
        self.edges = torch.from_numpy(np.concatenate(shifted, axis=1))
        self.totals = torch.from_numpy(np.stack([graph.totals for graph in graphs]))
        self.graph = torch.from_numpy(np.repeat(np.arange(self.size), sizes))


class Head(nn.Module):
    """One output a task for each job, from its embedding and context and the sum and maximum of its co-runners'."""

    def __init__(self, n_context: int) -> None:
        super().__init__()
        self.job = nn.Sequential(nn.Linear(WIDTH + n_context, WIDTH), nn.ReLU(), nn.Dropout(DROPOUT))
        last = nn.Linear(WIDTH, len(TASKS))
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.out = nn.Sequential(nn.Linear(3 * WIDTH, WIDTH), nn.ReLU(), last)

    def forward(self, embedding: Tensor, context: Tensor, present: Tensor) -> Tensor:
        """``(n_sets, MAX_JOBS, len(TASKS))`` from embeddings and contexts of that shape; ``present`` marks jobs."""
        jobs = self.job(torch.cat([embedding, context], dim=2)) * present[:, :, None]
        others = jobs.sum(dim=1, keepdim=True) - jobs
        n = jobs.shape[1]
        loudest = torch.stack([jobs[:, [k for k in range(n) if k != j]].amax(dim=1) for j in range(n)], dim=1)
        out: Tensor = self.out(torch.cat([jobs, others, loudest], dim=2))
        return out
