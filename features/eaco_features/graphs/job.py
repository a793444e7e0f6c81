"""What a user hands over to have a training job recorded: ``build_job(batch_size) -> TrainingJob``.

Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


@dataclass(frozen=True)
class TrainingJob:
    """One training job, built and ready to step.

    Args:
        step: does one whole training step: forward, loss, backward, optimizer step. Called without arguments, several
            times; it makes or holds its own input of the batch size asked for.
        modules: the modules whose parameters are trained.
        optimizers: the optimizers that ``step`` steps.
        samples_per_step: samples that one step consumes; the batch size unless stated.
    """

    step: Callable[[], object]
    modules: Sequence[nn.Module]
    optimizers: Sequence[Optimizer] = field(default=())
    samples_per_step: int | None = None


BuildJob = Callable[[int], TrainingJob]
"""``build_job(batch_size)``: builds the job anew at a batch size. It may use any torch code."""
