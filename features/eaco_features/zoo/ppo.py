"""PPO (Schulman et al. 2017) on LunarLander: one update on a mini-batch of the rollout, Adam.

Sizes and settings are the defaults of the library that Lucid ran: separate actor and critic of two tanh layers of 64,
clip range 0.2, advantages normalised, gradients clipped to 0.5. One sample is one transition; the environment runs
on the CPU and is no part of the step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._sequences import checked_batch_size, descend, mlp

OBSERVATIONS = 8
ACTIONS = 4
WIDTH = 64
CLIP_RANGE = 0.2
VALUE_WEIGHT = 0.5


def build_ppo_lunarlander(batch_size: int) -> TrainingJob:
    """The job at this many transitions an update.

    Raises:
        InputError: the batch size is not positive.
    """
    checked_batch_size(batch_size)
    actor = mlp((OBSERVATIONS, WIDTH, WIDTH, ACTIONS), nn.Tanh)
    critic = mlp((OBSERVATIONS, WIDTH, WIDTH, 1), nn.Tanh)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-4, eps=1e-5)
    observations = torch.randn(batch_size, OBSERVATIONS)
    actions = torch.randint(ACTIONS, (batch_size, 1))
    old_log_chances = torch.log_softmax(torch.randn(batch_size, ACTIONS), dim=1).gather(1, actions).squeeze(1)
    raw_advantages, returns = torch.randn(2, batch_size).unbind(0)

    def step() -> Tensor:
        advantages = (raw_advantages - raw_advantages.mean()) / (raw_advantages.std(correction=0) + 1e-8)
        log_probabilities = functional.log_softmax(actor(observations), dim=1)
        ratio = (log_probabilities.gather(1, actions).squeeze(1) - old_log_chances).exp()
        clipped = ratio.clamp(1 - CLIP_RANGE, 1 + CLIP_RANGE)
        policy_loss = -torch.minimum(ratio * advantages, clipped * advantages).mean()
        value_loss = functional.mse_loss(critic(observations).squeeze(1), returns)
        return descend(policy_loss + VALUE_WEIGHT * value_loss, optimizer, clip_norm=0.5)

    return TrainingJob(step=step, modules=(actor, critic), optimizers=(optimizer,))
