"""GPT-2 small (Radford et al. 2019), pre-trained on sequences of 1,024 tokens with AdamW.

12 layers of width 768, 12 heads, 50,257 tokens, layer norm before each branch, output tied to the embedding. Attention
is PyTorch's fused causal one, as current training programs use it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._sequences import Attention, FeedForward, checked_batch_size, descend, small_normal

VOCABULARY = 50_257
LENGTH = 1_024
WIDTH = 768
LAYERS = 12
HEADS = 12
DROPOUT = 0.1


class Block(nn.Module):
    """Causal self-attention and feed-forward, each on a layer-normed input and added to it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.attention = Attention(WIDTH, HEADS, dropout=DROPOUT, fused=True, causal=True)
        self.feed_forward_norm = nn.LayerNorm(WIDTH)
        self.feed_forward = FeedForward(WIDTH, 4 * WIDTH, nn.GELU(approximate="tanh"))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        y: Tensor = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return y


class Gpt2(nn.Module):
    """``(batch, length)`` token ids -> ``(batch, length, vocabulary)`` logits of the next token."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.norm = nn.LayerNorm(WIDTH)
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.output.weight = self.tokens.weight
        self.apply(small_normal)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.places(places))
        logits: Tensor = self.output(self.norm(self.blocks(x)))
        return logits


def build_gpt2_small(batch_size: int, length: int = LENGTH, layers: int = LAYERS) -> TrainingJob:
    """The job at this many sequences a step; gradients clipped to norm 1.

    Raises:
        InputError: the batch size is not positive.
    """
    checked_batch_size(batch_size)
    model = Gpt2(layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
    text = torch.randint(VOCABULARY, (batch_size, length + 1))
    tokens, following = text[:, :-1], text[:, 1:]

    def step() -> Tensor:
        loss = functional.cross_entropy(model(tokens).flatten(0, 1), following.flatten())
        return descend(loss, optimizer, clip_norm=1.0)

    return TrainingJob(step=step, modules=(model,), optimizers=(optimizer,))
