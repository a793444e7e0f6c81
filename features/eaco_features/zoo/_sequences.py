"""Blocks that the sequence, recommendation and reinforcement-learning jobs share: attention, feed-forward, one step."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from eaco_datasets.errors import InputError


class Attention(nn.Module):
    """Multi-head scaled dot-product attention (Vaswani et al. 2017, section 3.2), ``(batch, length, width)`` each way.

    Unless ``fused``, the scores are formed as a matrix and soft-maxed, as programs did before PyTorch 2 had
    ``scaled_dot_product_attention``: it costs more kernels and keeps ``heads x length x length`` scores for the
    backward pass. Only a fused one may be ``causal`` without a mask.
    """

    def __init__(self, width: int, heads: int, *, dropout: float, fused: bool = False, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.dropout, self.fused, self.causal = heads, dropout, fused, causal
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor | None = None, hidden: Tensor | None = None) -> Tensor:
        """Attend from ``x`` to ``memory`` (``x`` itself when none), not to positions where ``hidden`` is true."""
        source = x if memory is None else memory
        query, key, value = self._split(self.query(x)), self._split(self.key(source)), self._split(self.value(source))
        if self.fused:
            dropout = self.dropout if self.training else 0.0
            seen = None if hidden is None else ~hidden
            mixed = functional.scaled_dot_product_attention(
                query, key, value, attn_mask=seen, dropout_p=dropout, is_causal=self.causal
            )
        else:
            scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
            if hidden is not None:
                scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
            weights = functional.dropout(scores.softmax(-1), self.dropout, self.training)
            mixed = weights @ value
        attended: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return attended

    def _split(self, x: Tensor) -> Tensor:
        """``(batch, length, width)`` -> ``(batch, heads, length, width / heads)``."""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class FeedForward(nn.Sequential):
    """The position-wise two-layer network of a transformer block."""

    def __init__(self, width: int, inner: int, activation: nn.Module) -> None:
        super().__init__(nn.Linear(width, inner), activation, nn.Linear(inner, width))


def mlp(sizes: tuple[int, ...], activation: type[nn.Module], *, last: nn.Module | None = None) -> nn.Sequential:
    """Linear layers of these sizes with the activation between them, and ``last`` after the last one."""
    layers: list[nn.Module] = []
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        if index:
            layers.append(activation())
        layers.append(nn.Linear(inputs, outputs))
    return nn.Sequential(*layers, *([] if last is None else [last]))


def small_normal(module: nn.Module) -> None:
    """Draw linear and embedding weights from N(0, 0.02), biases 0, as BERT and GPT-2 do; for ``Module.apply``."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def descend(loss: Tensor, optimizer: Optimizer, *, clip_norm: float | None = None) -> Tensor:
    """Clear gradients, run the backward pass, clip the gradients' norm if asked, step; returns the loss, detached."""
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    if clip_norm is not None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        nn.utils.clip_grad_norm_(parameters, clip_norm)
    optimizer.step()
    return loss.detach()


def checked_batch_size(batch_size: int, *, multiple_of: int = 1) -> int:
    """The batch size, if it is a positive multiple.

    Raises:
        InputError: it is not.
    """
    if batch_size < 1 or batch_size % multiple_of:
        expected = "1 or more" if multiple_of == 1 else f"a multiple of {multiple_of}"
        raise InputError(f"no batch of {batch_size}", where="batch_size", expected=expected)
    return batch_size
