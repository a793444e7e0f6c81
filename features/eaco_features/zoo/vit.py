"""Vision transformer ViT-B/16 (Dosovitskiy et al. 2021, arXiv 2010.11929)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from eaco_features.graphs.job import TrainingJob
from eaco_features.zoo._common import IMAGENET, adamw, classification_job

# Table 1 of the paper, row ViT-Base, with patches of 16 x 16 pixels.
_WIDTH, _DEPTH, _N_HEADS, _N_HIDDEN, _PATCH_PX = 768, 12, 12, 3072, 16
_NORM_EPSILON = 1e-6


class SelfAttention(nn.Module):
    """Attention of every token to every token."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.to_qkv = nn.Linear(width, 3 * width)
        self.to_out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, tokens, width)`` to the same shape."""
        n, n_tokens, width = x.shape
        qkv = self.to_qkv(x).view(n, n_tokens, 3, self.n_heads, width // self.n_heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
        out: Tensor = self.to_out(mixed.transpose(1, 2).reshape(n, n_tokens, width))
        return out


class EncoderLayer(nn.Module):
    """Attention and a two-layer perceptron, each normed first and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.Sequential(nn.LayerNorm(_WIDTH, eps=_NORM_EPSILON), SelfAttention(_WIDTH, _N_HEADS))
        self.perceive = nn.Sequential(
            nn.LayerNorm(_WIDTH, eps=_NORM_EPSILON),
            nn.Linear(_WIDTH, _N_HIDDEN),
            nn.GELU(),
            nn.Linear(_N_HIDDEN, _WIDTH),
        )

    def forward(self, x: Tensor) -> Tensor:
        """``(n, tokens, width)`` to the same shape."""
        x = x + self.attend(x)
        y: Tensor = x + self.perceive(x)
        return y


class VisionTransformer(nn.Module):
    """The network, for square images ``(n, 3, image_size_px, image_size_px)``."""

    def __init__(self, n_classes: int = 1000, image_size_px: int = 224) -> None:
        super().__init__()
        n_patches = (image_size_px // _PATCH_PX) ** 2
        self.embed = nn.Conv2d(3, _WIDTH, _PATCH_PX, stride=_PATCH_PX)
        self.class_token = nn.Parameter(torch.zeros(1, 1, _WIDTH))
        self.position = nn.Parameter(torch.randn(1, n_patches + 1, _WIDTH) * 0.02)
        self.layers = nn.Sequential(*(EncoderLayer() for _ in range(_DEPTH)))
        self.head = nn.Sequential(nn.LayerNorm(_WIDTH, eps=_NORM_EPSILON), nn.Linear(_WIDTH, n_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Scores ``(n, n_classes)``, read from the class token."""
        patches: Tensor = self.embed(x).flatten(2).transpose(1, 2)
        tokens = torch.cat((self.class_token.expand(x.shape[0], -1, -1), patches), dim=1) + self.position
        scores: Tensor = self.head(self.layers(tokens)[:, 0])
        return scores


def build_vit_b16_imagenet(batch_size: int) -> TrainingJob:
    """ViT-B/16 on ImageNet with AdamW."""
    return classification_job(batch_size, IMAGENET, VisionTransformer, adamw)
