"""Deep Speech 2 (Amodei et al. 2016) on LibriSpeech: two convolutions, five bidirectional GRUs, CTC loss, AdamW.

The sizes are those of the public PyTorch program (800 units, the two directions added, 29 characters, 161 frequencies
every 10 ms), not the paper's larger models.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._sequences import checked_batch_size, descend

FREQUENCIES = 161
"""Bins of a spectrogram with 20 ms windows at 16 kHz."""

CHARACTERS = 29
"""Blank, apostrophe, 26 letters, space."""

HIDDEN = 800
LAYERS = 5

FRAMES = 1_230
"""LibriSpeech's mean utterance: 960.9 h over 281,241 utterances is 12.3 s (Panayotov et al. 2015), every 10 ms."""

CHARACTERS_PER_FRAME = 0.15
"""A choice of the usual order: 15 characters a second."""


class DeepSpeech2(nn.Module):
    """``(batch, 1, 161, frames)`` spectrograms -> ``(frames / 2, batch, characters)`` log probabilities."""

    def __init__(self, hidden: int, layers: int) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), stride=(2, 2), padding=(20, 5)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0.0, 20.0),
            nn.Conv2d(32, 32, (21, 11), stride=(2, 1), padding=(10, 5)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0.0, 20.0),
        )
        widths = [32 * 41] + [hidden] * (layers - 1)
        self.recurrent = nn.ModuleList(nn.GRU(width, hidden, bidirectional=True) for width in widths)
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(layers))
        self.output = nn.Linear(hidden, CHARACTERS, bias=False)

    def forward(self, spectrogram: Tensor) -> Tensor:
        x = self.front(spectrogram).flatten(1, 2).permute(2, 0, 1).contiguous()
        for recurrent, norm in zip(self.recurrent, self.norms, strict=True):
            both, _ = recurrent(x)
            x = both.unflatten(-1, (2, -1)).sum(-2)
            x = norm(x.flatten(0, 1)).view_as(x)
        logits: Tensor = self.output(x)
        return logits.log_softmax(-1)


def build_deepspeech2(batch_size: int, frames: int = FRAMES) -> TrainingJob:
    """The job at this many utterances a step, each of ``frames`` spectrogram columns; gradients clipped to norm 400.

    Raises:
        InputError: the batch size is not positive.
    """
    checked_batch_size(batch_size)
    model = DeepSpeech2(HIDDEN, LAYERS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    spectrogram = torch.randn(batch_size, 1, FREQUENCIES, frames)
    characters = torch.randint(1, CHARACTERS, (batch_size, int(frames * CHARACTERS_PER_FRAME)))
    lengths = torch.full((batch_size,), characters.shape[1])

    def step() -> Tensor:
        output = model(spectrogram)
        columns = torch.full((batch_size,), output.shape[0])
        return descend(functional.ctc_loss(output, characters, columns, lengths), optimizer, clip_norm=400.0)

    return TrainingJob(step=step, modules=(model,), optimizers=(optimizer,))
