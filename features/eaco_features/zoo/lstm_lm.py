"""LSTM language model on WikiText-2: two layers of 200 units over windows of 35 words, SGD.

The sizes are the defaults of PyTorch's ``word_language_model`` example, which Gavel's ``LM`` and Lucid's ``LSTM`` keep
(embedding 200, 200 hidden units, 2 layers, dropout 0.2, untied, 35 steps of truncated backpropagation), not the 650 or
1,500 units of the larger published models. One sample is one window; the hidden state is carried between steps.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._sequences import checked_batch_size, descend

VOCABULARY = 33_278
"""Distinct tokens of WikiText-2 with the end-of-sentence mark (Merity et al. 2016, table 1)."""

WINDOW = 35
WIDTH = 200
LAYERS = 2


class LanguageModel(nn.Module):
    """Embedding, LSTM, linear decoder: ``(length, batch)`` word ids -> ``(length, batch, vocabulary)`` logits."""

    def __init__(self, vocabulary: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, dropout=dropout)
        self.decoder = nn.Linear(width, vocabulary)

    def forward(self, words: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        hidden, state = self.lstm(self.dropout(self.embedding(words)), state)
        return self.decoder(self.dropout(hidden)), state


def build_lstm_lm(batch_size: int) -> TrainingJob:
    """The job at this many windows a step; SGD at learning rate 20, gradients clipped to 0.25.

    Raises:
        InputError: the batch size is not positive.
    """
    checked_batch_size(batch_size)
    model = LanguageModel(VOCABULARY, WIDTH, LAYERS, dropout=0.2)
    optimizer = torch.optim.SGD(model.parameters(), lr=20.0)
    text = torch.randint(VOCABULARY, (WINDOW + 1, batch_size))
    words, following = text[:-1], text[1:]
    state = (torch.zeros(LAYERS, batch_size, WIDTH), torch.zeros(LAYERS, batch_size, WIDTH))

    def step() -> Tensor:
        nonlocal state
        state = (state[0].detach(), state[1].detach())
        logits, state = model(words, state)
        loss = functional.cross_entropy(logits.flatten(0, 1), following.flatten())
        return descend(loss, optimizer, clip_norm=0.25)

    return TrainingJob(step=step, modules=(model,), optimizers=(optimizer,))
