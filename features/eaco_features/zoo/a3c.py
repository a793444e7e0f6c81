"""A3C (Mnih et al. 2016) with a convolutional LSTM policy on Atari Pong, Adam with AMSGrad: one worker's update.

The network and rollout are those of the program that Gavel runs: four convolutions with pooling on 80 x 80 grey
frames, an LSTM cell of 512, 20 frames acted one after another and then one update. One sample is one frame, so a
batch size is a multiple of 20; Gavel's job is 20, one environment per worker (it runs 4 workers on a GPU). The
emulator, which runs on the CPU, and the copying of parameters between workers are no part of the step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._sequences import checked_batch_size, descend

ROLLOUT = 20
ACTIONS = 6
SIDE = 80
HIDDEN = 512
DISCOUNT = 0.99
ENTROPY_WEIGHT = 0.01

State = tuple[Tensor, Tensor]


class ActorCritic(nn.Module):
    """``(environments, 1, 80, 80)`` frames and the LSTM's state -> value, action logits, next state."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs, kernel, padding in ((1, 32, 5, 2), (32, 32, 5, 1), (32, 64, 4, 1), (64, 64, 3, 1)):
            layers += [nn.Conv2d(inputs, outputs, kernel, padding=padding), nn.MaxPool2d(2), nn.ReLU()]
        self.eyes = nn.Sequential(*layers, nn.Flatten())
        self.memory = nn.LSTMCell(1_024, HIDDEN)
        self.critic = nn.Linear(HIDDEN, 1)
        self.actor = nn.Linear(HIDDEN, actions)

    def forward(self, frame: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        state = self.memory(self.eyes(frame), state)
        return self.critic(state[0]), self.actor(state[0]), state


def build_a3c(batch_size: int) -> TrainingJob:
    """The job at this many frames an update: ``batch_size / 20`` environments of 20 frames each.

    Raises:
        InputError: the batch size is no positive multiple of 20.
    """
    environments = checked_batch_size(batch_size, multiple_of=ROLLOUT) // ROLLOUT
    model = ActorCritic(ACTIONS)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, amsgrad=True)
    frames = torch.rand(ROLLOUT + 1, environments, 1, SIDE, SIDE)
    rewards = torch.randint(-1, 2, (ROLLOUT, environments, 1)).float()
    state: State = (torch.zeros(environments, HIDDEN), torch.zeros(environments, HIDDEN))

    def step() -> Tensor:
        nonlocal state
        state = (state[0].detach(), state[1].detach())
        loss, state = _rollout_loss(model, frames, rewards, state)
        return descend(loss, optimizer)

    return TrainingJob(step=step, modules=(model,), optimizers=(optimizer,))


def _rollout_loss(model: ActorCritic, frames: Tensor, rewards: Tensor, state: State) -> tuple[Tensor, State]:
    """Act through the rollout, then the actor's and the critic's loss with generalised advantages (lambda 1)."""
    values, log_chances, entropies = [], [], []
    for frame in frames[:-1]:
        value, logits, state = model(frame, state)
        log_probabilities = functional.log_softmax(logits, dim=-1)
        probabilities = log_probabilities.exp()
        action = probabilities.detach().multinomial(1)
        values.append(value)
        log_chances.append(log_probabilities.gather(1, action))
        entropies.append(-(log_probabilities * probabilities).sum(1, keepdim=True))
    with torch.no_grad():
        last_value, _, _ = model(frames[-1], state)
    following = [value.detach() for value in values[1:]] + [last_value]
    outcome, advantage = last_value, torch.zeros_like(last_value)
    loss = torch.zeros_like(last_value)
    for t in reversed(range(len(values))):
        outcome = DISCOUNT * outcome + rewards[t]
        surprise = rewards[t] + DISCOUNT * following[t] - values[t].detach()
        advantage = DISCOUNT * advantage + surprise
        loss = loss + 0.25 * (outcome - values[t]).square()
        loss = loss - log_chances[t] * advantage - ENTROPY_WEIGHT * entropies[t]
    return loss.mean(), state
