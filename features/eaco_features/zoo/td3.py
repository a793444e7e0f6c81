"""TD3 (Fujimoto et al. 2018) on BipedalWalker: twin critics, a delayed actor, target networks, Adam.

Sizes and settings are the defaults of the library that Lucid ran: layers of 400 and 300, learning rate 1e-3, actor and
targets updated every second time. One step of the job is that whole cycle, two critic updates and one of the actor,
on two batches from the replay memory; so every step does the same work. The environment runs on the CPU and is no
part of the step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._sequences import checked_batch_size, descend, mlp

OBSERVATIONS = 24
ACTIONS = 4
LAYERS = (400, 300)
POLICY_DELAY = 2
DISCOUNT = 0.99
TARGET_RATE = 0.005
POLICY_NOISE = 0.2
NOISE_CLIP = 0.5


class TwinCritic(nn.Module):
    """Two independent estimates ``(batch, 1)`` of a state and action's value."""

    def __init__(self) -> None:
        super().__init__()
        self.first = mlp((OBSERVATIONS + ACTIONS, *LAYERS, 1), nn.ReLU)
        self.second = mlp((OBSERVATIONS + ACTIONS, *LAYERS, 1), nn.ReLU)

    def forward(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat((observations, actions), dim=1)
        return self.first(both), self.second(both)


def _actor() -> nn.Sequential:
    return mlp((OBSERVATIONS, *LAYERS, ACTIONS), nn.ReLU, last=nn.Tanh())


class Td3:
    """The networks, their slowly following copies, their optimizers and the two kinds of update."""

    def __init__(self) -> None:
        self.actor, self.target_actor = _actor(), _actor().requires_grad_(False)
        self.critic, self.target_critic = TwinCritic(), TwinCritic().requires_grad_(False)
        self.target_actor.load_state_dict(self.actor.state_dict())
        self.target_critic.load_state_dict(self.critic.state_dict())
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-3)

    def update_critic(self, batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> Tensor:
        """One step of both critics towards the smaller of the targets' values, with smoothed target actions."""
        observations, actions, rewards, following = batch
        with torch.no_grad():
            noise = (torch.randn_like(actions) * POLICY_NOISE).clamp(-NOISE_CLIP, NOISE_CLIP)
            next_actions = (self.target_actor(following) + noise).clamp(-1.0, 1.0)
            value = rewards + DISCOUNT * torch.minimum(*self.target_critic(following, next_actions))
        first, second = self.critic(observations, actions)
        loss = functional.mse_loss(first, value) + functional.mse_loss(second, value)
        return descend(loss, self.critic_optimizer)

    def update_actor(self, observations: Tensor) -> None:
        """One step of the actor up the first critic's value; then the targets follow."""
        chosen = torch.cat((observations, self.actor(observations)), dim=1)
        descend(-self.critic.first(chosen).mean(), self.actor_optimizer)
        with torch.no_grad():
            for network, target in ((self.actor, self.target_actor), (self.critic, self.target_critic)):
                for parameter, followed in zip(network.parameters(), target.parameters(), strict=True):
                    followed.mul_(1 - TARGET_RATE).add_(parameter, alpha=TARGET_RATE)


def build_td3_bipedalwalker(batch_size: int) -> TrainingJob:
    """The job at this many transitions a critic update; a step takes two of them.

    Raises:
        InputError: the batch size is not positive.
    """
    checked_batch_size(batch_size)
    agent = Td3()
    batches = [
        (
            torch.randn(batch_size, OBSERVATIONS),
            torch.rand(batch_size, ACTIONS) * 2 - 1,
            torch.randn(batch_size, 1),
            torch.randn(batch_size, OBSERVATIONS),
        )
        for _ in range(POLICY_DELAY)
    ]

    def step() -> Tensor:
        losses = [agent.update_critic(batch) for batch in batches]
        agent.update_actor(batches[-1][0])
        return torch.stack(losses).mean()

    return TrainingJob(
        step=step,
        modules=(agent.actor, agent.critic),
        optimizers=(agent.critic_optimizer, agent.actor_optimizer),
        samples_per_step=POLICY_DELAY * batch_size,
    )
