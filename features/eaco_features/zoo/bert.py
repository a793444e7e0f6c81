"""BERT-base uncased (Devlin et al. 2019), fine-tuned on SQuAD (384 tokens) and on Sentiment140 (short tweets), AdamW.

12 layers of width 768, 12 heads, inner width 3,072, 30,522 word pieces, layer norm after each residual. Attention
scores are formed explicitly, as the programs did that Lucid and Zeus measured.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._sequences import Attention, FeedForward, checked_batch_size, descend, small_normal

VOCABULARY = 30_522
POSITIONS = 512
WIDTH = 768
LAYERS = 12
HEADS = 12
INNER = 3_072
DROPOUT = 0.1
NORM_EPS = 1e-12

SQUAD_LENGTH = 384
"""Tokens of a SQuAD window, the fine-tuning script's default that Lucid keeps."""

TWEET_LENGTH = 48
"""Tokens of a tweet padded to the longest of its batch: a choice, the sources do not state it."""


class Layer(nn.Module):
    """One encoder layer: self-attention and feed-forward, each with dropout, residual and layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention(WIDTH, HEADS, dropout=DROPOUT)
        self.feed_forward = FeedForward(WIDTH, INNER, nn.GELU())
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, eps=NORM_EPS) for _ in range(2))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        x = self.norms[0](x + self.dropout(self.attention(x, hidden=hidden)))
        y: Tensor = self.norms[1](x + self.dropout(self.feed_forward(x)))
        return y


class Encoder(nn.Module):
    """Embeddings and layers: ``(batch, length)`` ids, segments and mask (1 = a token) -> ``(batch, length, 768)``."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.places = nn.Embedding(POSITIONS, WIDTH)
        self.segments = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=NORM_EPS)
        self.dropout = nn.Dropout(DROPOUT)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))

    def forward(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x: Tensor = self.words(tokens) + self.places(places) + self.segments(segments)
        x = self.dropout(self.norm(x))
        hidden = mask.eq(0)[:, None, None, :]
        for layer in self.layers:
            x = layer(x, hidden)
        return x


class QuestionAnswering(nn.Module):
    """The encoder with a start and an end score for each token; no pooler."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.encoder = Encoder(layers)
        self.span = nn.Linear(WIDTH, 2)
        self.apply(small_normal)

    def forward(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        start, end = self.span(self.encoder(tokens, segments, mask)).unbind(-1)
        return start, end


class Classification(nn.Module):
    """The encoder with the tanh pooler of its first token and a linear classifier."""

    def __init__(self, classes: int, layers: int = LAYERS) -> None:
        super().__init__()
        self.encoder = Encoder(layers)
        self.pooler = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.classifier = nn.Linear(WIDTH, classes)
        self.apply(small_normal)

    def forward(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        first = self.encoder(tokens, segments, mask)[:, 0]
        logits: Tensor = self.classifier(self.dropout(torch.tanh(self.pooler(first))))
        return logits


def build_bert_base_squad(batch_size: int) -> TrainingJob:
    """Extractive question answering: the mean of the cross entropies of the answer's start and end.

    Raises:
        InputError: the batch size is not positive.
    """
    checked_batch_size(batch_size)
    model = QuestionAnswering()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, eps=1e-8, weight_decay=0.0)
    inputs = _synthetic_inputs(batch_size, SQUAD_LENGTH)
    starts, ends = torch.randint(SQUAD_LENGTH, (2, batch_size)).unbind(0)

    def step() -> Tensor:
        start, end = model(*inputs)
        loss = (functional.cross_entropy(start, starts) + functional.cross_entropy(end, ends)) / 2
        return descend(loss, optimizer)

    return TrainingJob(step=step, modules=(model,), optimizers=(optimizer,))


def build_bert_base_sentiment140(batch_size: int, length: int = TWEET_LENGTH) -> TrainingJob:
    """Two-way classification of tweets of ``length`` tokens.

    Raises:
        InputError: the batch size is not positive.
    """
    checked_batch_size(batch_size)
    model = Classification(classes=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    inputs = _synthetic_inputs(batch_size, length)
    labels = torch.randint(2, (batch_size,))

    def step() -> Tensor:
        return descend(functional.cross_entropy(model(*inputs), labels), optimizer)

    return TrainingJob(step=step, modules=(model,), optimizers=(optimizer,))


def _synthetic_inputs(batch_size: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random word pieces, segments (a question or a text) and a mask without padding."""
    shape = (batch_size, length)
    return torch.randint(1, VOCABULARY, shape), torch.randint(2, shape), torch.ones(shape, dtype=torch.long)
