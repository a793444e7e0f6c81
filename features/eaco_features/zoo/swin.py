"""Swin transformer, size T (Liu et al. 2021, arXiv 2103.14030): attention inside windows that shift every other layer.

Token maps are ``(n, height, width, channels)``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._common import IMAGENET, DropPath, adamw, classification_job

# Section 3.3 of the paper, Swin-T.
_WIDTH, _DEPTHS, _HEADS, _WINDOW, _PATCH_PX = 96, (2, 2, 6, 2), (3, 6, 12, 24), 7, 4
_DROP_PATH = 0.2  # of the last layer, rising linearly from 0: section A2.1
_TOKENS = _WINDOW * _WINDOW


def to_windows(x: Tensor) -> Tensor:
    """Token map to its windows ``(n * windows, tokens, channels)``."""
    n, height, width, channels = x.shape
    split = x.view(n, height // _WINDOW, _WINDOW, width // _WINDOW, _WINDOW, channels)
    return split.transpose(2, 3).reshape(-1, _TOKENS, channels)


def from_windows(windows: Tensor, height: int, width: int) -> Tensor:
    """The token map of ``height`` x ``width`` whose windows these are."""
    channels = windows.shape[-1]
    split = windows.view(-1, height // _WINDOW, width // _WINDOW, _WINDOW, _WINDOW, channels)
    return split.transpose(2, 3).reshape(-1, height, width, channels)


def relative_index() -> Tensor:
    """For each pair of tokens of a window, the row of the bias table ``(tokens, tokens)``: their offset in y and x."""
    at = torch.arange(_TOKENS)
    y, x = at // _WINDOW, at % _WINDOW
    span = 2 * _WINDOW - 1
    return (y[:, None] - y[None, :] + _WINDOW - 1) * span + x[:, None] - x[None, :] + _WINDOW - 1


def shift_mask(size: int, shift: int) -> Tensor:
    """What to add to the attention of a shifted map ``(windows, 1, tokens, tokens)``.

    Tokens that the cyclic shift brought together from opposite borders are kept apart by -100.
    """
    at = torch.arange(size)
    region = (at >= size - _WINDOW).long() + (at >= size - shift).long()
    regions = to_windows((3 * region[:, None] + region[None, :]).view(1, size, size, 1)).squeeze(-1)
    apart = regions[:, None, :] != regions[:, :, None]
    return (apart.float() * -100.0).unsqueeze(1)


class WindowAttention(nn.Module):
    """Attention among the tokens of a window, with a learned bias for each relative position."""

    def __init__(self, channels: int, n_heads: int, mask: Tensor | None) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.to_qkv = nn.Linear(channels, 3 * channels)
        self.to_out = nn.Linear(channels, channels)
        self.bias = nn.Parameter(torch.randn((2 * _WINDOW - 1) ** 2, n_heads) * 0.02)
        self.index: Tensor
        self.register_buffer("index", relative_index().flatten(), persistent=False)
        self.mask: Tensor | None
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """``(n * windows, tokens, channels)`` to the same shape."""
        n, tokens, channels = x.shape
        qkv = self.to_qkv(x).view(n, tokens, 3, self.n_heads, channels // self.n_heads).permute(2, 0, 3, 1, 4)
        query, key, value = qkv[0] * (channels // self.n_heads) ** -0.5, qkv[1], qkv[2]
        scores = query @ key.transpose(-2, -1)
        scores = scores + self.bias[self.index].view(tokens, tokens, self.n_heads).permute(2, 0, 1)
        if self.mask is not None:
            by_image = scores.view(-1, self.mask.shape[0], self.n_heads, tokens, tokens) + self.mask
            scores = by_image.view(n, self.n_heads, tokens, tokens)
        mixed = (scores.softmax(dim=-1) @ value).transpose(1, 2).reshape(n, tokens, channels)
        out: Tensor = self.to_out(mixed)
        return out


class SwinLayer(nn.Module):
    """Window attention and a two-layer perceptron, each normed first and added to its input."""

    def __init__(self, channels: int, n_heads: int, size: int, *, shifted: bool, drop: float) -> None:
        super().__init__()
        self.shift = _WINDOW // 2 if shifted and size > _WINDOW else 0
        mask = shift_mask(size, self.shift) if self.shift else None
        self.norm = nn.LayerNorm(channels)
        self.attend = WindowAttention(channels, n_heads, mask)
        self.perceive = nn.Sequential(
            nn.LayerNorm(channels), nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        )
        self.drop_path = DropPath(drop)

    def forward(self, x: Tensor) -> Tensor:
        """Token map to token map."""
        y: Tensor = self.norm(x)
        if self.shift:
            y = y.roll((-self.shift, -self.shift), dims=(1, 2))
        y = from_windows(self.attend(to_windows(y)), x.shape[1], x.shape[2])
        if self.shift:
            y = y.roll((self.shift, self.shift), dims=(1, 2))
        x = x + self.drop_path(y)
        out: Tensor = x + self.drop_path(self.perceive(x))
        return out


class PatchMerging(nn.Module):
    """Join each 2 x 2 tokens into one of twice the channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = nn.Sequential(nn.LayerNorm(4 * channels), nn.Linear(4 * channels, 2 * channels, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        """``(n, h, w, channels)`` to ``(n, h / 2, w / 2, 2 channels)``."""
        quarters = [x[:, dy::2, dx::2] for dx in (0, 1) for dy in (0, 1)]
        merged: Tensor = self.reduce(torch.cat(quarters, dim=-1))
        return merged


class SwinTransformer(nn.Module):
    """The network, for images ``(n, 3, 224, 224)``."""

    def __init__(self, n_classes: int = 1000) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, _WIDTH, _PATCH_PX, stride=_PATCH_PX)
        layers: list[nn.Module] = [nn.LayerNorm(_WIDTH)]
        channels, size, index = _WIDTH, 224 // _PATCH_PX, 0
        for stage, (depth, n_heads) in enumerate(zip(_DEPTHS, _HEADS, strict=True)):
            if stage > 0:
                layers.append(PatchMerging(channels))
                channels, size = 2 * channels, size // 2
            for layer in range(depth):
                drop = _DROP_PATH * index / (sum(_DEPTHS) - 1)
                layers.append(SwinLayer(channels, n_heads, size, shifted=layer % 2 == 1, drop=drop))
                index += 1
        self.layers = nn.Sequential(*layers, nn.LayerNorm(channels))
        self.head = nn.Linear(channels, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores ``(n, n_classes)`` from the mean over the last token map."""
        tokens: Tensor = self.layers(self.embed(x).permute(0, 2, 3, 1))
        scores: Tensor = self.head(tokens.mean(dim=(1, 2)))
        return scores


def build_swin_t_imagenet(batch_size: int) -> TrainingJob:
    """Swin-T on ImageNet with AdamW."""
    return classification_job(batch_size, IMAGENET, SwinTransformer, adamw)
