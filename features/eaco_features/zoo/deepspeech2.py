"""Deep Speech 2 (Amodei et al. 2016) on LibriSpeech: two convolutions, five bidirectional GRUs, CTC loss, AdamW.

The sizes are those of the public PyTorch program (800 units, the two directions added, 29 characters, 161 frequencies
every 10 ms), not the paper's larger models.

CTC needs care under fake tensors: PyTorch gives ``aten::_ctc_loss`` no shape rule, so recording it stops with
``DynamicOutputShapeException``. It is wrapped here in an operator of its own, ``eaco::ctc_loss``, that computes exactly
PyTorch's loss and states its shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

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

    def step() -> Tensor:
        return descend(mean_ctc_loss(model(spectrogram), characters), optimizer, clip_norm=400.0)

    return TrainingJob(step=step, modules=(model,), optimizers=(optimizer,))


def mean_ctc_loss(log_probabilities: Tensor, targets: Tensor) -> Tensor:
    """CTC loss per target character, averaged over the batch; every sequence is full length, class 0 is blank.

    Args:
        log_probabilities: ``(frames, batch, classes)``.
        targets: ``(batch, characters)`` class ids, without blanks.
    """
    losses, _ = _ctc_operator()(log_probabilities, targets)
    return losses.mean() / targets.shape[1]


@cache
def _ctc_operator() -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """``eaco::ctc_loss``: losses ``(batch,)`` and the ``(batch, frames, 2 characters + 1)`` alphas of its backward."""

    @torch.library.custom_op("eaco::ctc_loss", mutates_args=())
    def ctc_loss(log_probabilities: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        frames, characters = _lengths(log_probabilities, targets)
        losses, log_alpha = torch.ops.aten._ctc_loss(log_probabilities, targets, frames, characters, 0, False)
        return losses, log_alpha

    @ctc_loss.register_fake
    def _(log_probabilities: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        frames, batch, _ = log_probabilities.shape
        alphas = log_probabilities.new_empty((batch, frames, 2 * targets.shape[1] + 1))
        return log_probabilities.new_empty((batch,)), alphas

    @torch.library.custom_op("eaco::ctc_loss_backward", mutates_args=())
    def ctc_loss_backward(
        gradient: Tensor, log_probabilities: Tensor, targets: Tensor, losses: Tensor, log_alpha: Tensor
    ) -> Tensor:
        frames, characters = _lengths(log_probabilities, targets)
        arguments = (gradient, log_probabilities, targets, frames, characters, losses, log_alpha, 0, False)
        propagated: Tensor = torch.ops.aten._ctc_loss_backward(*arguments)
        return propagated

    @ctc_loss_backward.register_fake
    def _(_gradient: Tensor, log_probabilities: Tensor, *_saved: Tensor) -> Tensor:
        return torch.empty_like(log_probabilities)

    def keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs, *output)

    def backward(ctx: Any, gradient: Tensor, _alpha_gradient: Tensor) -> tuple[Tensor, None]:
        return ctc_loss_backward(gradient.contiguous(), *ctx.saved_tensors), None

    ctc_loss.register_autograd(backward, setup_context=keep)
    return ctc_loss


def _lengths(log_probabilities: Tensor, targets: Tensor) -> tuple[list[int], list[int]]:
    frames, batch, _ = log_probabilities.shape
    return [frames] * batch, [targets.shape[1]] * batch
