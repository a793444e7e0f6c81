"""Transformer base (Vaswani et al. 2017) translating Multi30k, English to German, with Adam.

As the program that Gavel and Lucid run: 6 + 6 layers of width 512, 8 heads, inner width 2,048, layer norm after each
residual, attention scores formed explicitly, fixed sinusoidal positions, the target embedding shared with the output
projection (``-proj_share_weight``), cross entropy summed over the words without label smoothing.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._sequences import Attention, FeedForward, checked_batch_size, descend

SOURCE_VOCABULARY = 2_911
TARGET_VOCABULARY = 3_149
"""Words kept of Multi30k's lower-cased training text, English and German. A choice of the size that a minimum count of
five leaves: the sources do not publish theirs. The embeddings are 7 % of the parameters."""

LENGTH = 32
"""Tokens of a padded sentence: a choice; Multi30k's have 12 words on average and a batch is padded to its longest."""

PADDING = 0
WIDTH = 512


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each with dropout, residual and layer norm."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout=dropout)
        self.feed_forward = FeedForward(width, inner, nn.ReLU())
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        x = self.norms[0](x + self.dropout(self.attention(x, hidden=hidden)))
        y: Tensor = self.norms[1](x + self.dropout(self.feed_forward(x)))
        return y


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source and feed-forward, each with dropout, residual and layer norm."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout=dropout)
        self.source_attention = Attention(width, heads, dropout=dropout)
        self.feed_forward = FeedForward(width, inner, nn.ReLU())
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor, hidden: Tensor, hidden_source: Tensor) -> Tensor:
        x = self.norms[0](x + self.dropout(self.attention(x, hidden=hidden)))
        x = self.norms[1](x + self.dropout(self.source_attention(x, memory, hidden_source)))
        y: Tensor = self.norms[2](x + self.dropout(self.feed_forward(x)))
        return y


class Transformer(nn.Module):
    """Encoder and decoder: two ``(batch, length)`` id tensors -> ``(batch, length, target vocabulary)`` logits.

    Args:
        shared: one vocabulary, one embedding for source, target and output, as in the paper.
    """

    positions: Tensor

    def __init__(self, vocabularies: tuple[int, int], *, shared: bool = False, layers: int = 6) -> None:
        super().__init__()
        heads, inner, dropout = 8, 2048, 0.1
        self.target_embedding = nn.Embedding(vocabularies[1], WIDTH, padding_idx=PADDING)
        self.source_embedding = (
            self.target_embedding if shared else nn.Embedding(vocabularies[0], WIDTH, padding_idx=PADDING)
        )
        self.encoder = nn.ModuleList(EncoderLayer(WIDTH, heads, inner, dropout) for _ in range(layers))
        self.decoder = nn.ModuleList(DecoderLayer(WIDTH, heads, inner, dropout) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(WIDTH, vocabularies[1], bias=False)
        self.output.weight = self.target_embedding.weight
        nn.init.normal_(self.target_embedding.weight, std=WIDTH**-0.5)
        self.register_buffer("positions", sinusoids(LENGTH, WIDTH))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        hidden_source = source.eq(PADDING)[:, None, None, :]
        ahead = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool, device=target.device).triu(1)
        hidden = target.eq(PADDING)[:, None, None, :] | ahead
        memory = self._embed(self.source_embedding, source)
        for layer in self.encoder:
            memory = layer(memory, hidden_source)
        x = self._embed(self.target_embedding, target)
        for layer in self.decoder:
            x = layer(x, memory, hidden, hidden_source)
        logits: Tensor = self.output(x)
        return logits

    def _embed(self, embedding: nn.Module, tokens: Tensor) -> Tensor:
        x: Tensor = self.dropout(embedding(tokens) * math.sqrt(WIDTH) + self.positions[: tokens.shape[1]])
        return x


def sinusoids(length: int, width: int) -> Tensor:
    """Positional encodings ``(length, width)``: sines in the first half, cosines in the second (section 3.5)."""
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1)


def build_transformer_multi30k(batch_size: int) -> TrainingJob:
    """The job at this many sentence pairs a step.

    Raises:
        InputError: the batch size is not positive.
    """
    checked_batch_size(batch_size)
    model = Transformer((SOURCE_VOCABULARY, TARGET_VOCABULARY))
    optimizer = torch.optim.Adam(model.parameters(), lr=7e-4, betas=(0.9, 0.98), eps=1e-9)
    source = torch.randint(1, SOURCE_VOCABULARY, (batch_size, LENGTH))
    sentence = torch.randint(1, TARGET_VOCABULARY, (batch_size, LENGTH + 1))
    target, gold = sentence[:, :-1], sentence[:, 1:]

    def step() -> Tensor:
        logits = model(source, target)
        loss = functional.cross_entropy(logits.flatten(0, 1), gold.flatten(), ignore_index=PADDING, reduction="sum")
        return descend(loss, optimizer)

    return TrainingJob(step=step, modules=(model,), optimizers=(optimizer,))
