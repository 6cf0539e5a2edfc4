"""A small classifier of 8 x 8 images, and what it costs."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from perfsweep.workloads.digits.data import CLASSES, PIXELS

# N examples, C channels (features of the mlp), S = 8 rows and columns of an image.
SIDE = 8
KERNEL = 3


class Block(nn.Module):
    """x + gelu(layer(norm(x))): a product and the pointwise work around it, which a compiler can fuse.

    The norms look at one example at a time. Batch norm would see other statistics in each piece of a divided
    batch, and no `micro_batch` could be exact.
    """

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, width) if kind == "conv" else nn.LayerNorm(width)
        self.layer = (
            nn.Conv2d(width, width, KERNEL, padding="same") if kind == "conv" else nn.Linear(width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, S, S] to the same (mlp: [N, C])."""
        return x + F.gelu(self.layer(self.norm(x)))


class Classifier(nn.Module):
    """Stem, residual blocks, linear head."""

    def __init__(self, kind: str, width: int, depth: int) -> None:
        super().__init__()
        self.kind = kind
        self.stem = (
            nn.Conv2d(1, width, KERNEL, padding="same") if kind == "conv" else nn.Linear(PIXELS, width)
        )
        self.blocks = nn.ModuleList(Block(kind, width) for _ in range(depth))
        self.head = nn.Linear(width * SIDE * SIDE if kind == "conv" else width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Images [N, P] to logits [N, classes]."""
        if self.kind == "conv":
            images = images.view(-1, 1, SIDE, SIDE)  # [N, 1, S, S]
        x = self.stem(images)  # [N, C, S, S], or [N, C]
        for block in self.blocks:
            x = block(x)
        return self.head(x.flatten(start_dim=1))  # [N, C S S], or [N, C]


def training_flops(kind: str, width: int, depth: int) -> float:
    """Multiplications and additions of the products in one example's forward and backward pass.

    The backward pass multiplies twice for each product, for the gradients of its weights and of its input;
    the stem's input is the image, which needs none. Norms, activations and the optimiser are left out, as is
    convention.
    """
    positions, taps = (SIDE * SIDE, KERNEL * KERNEL) if kind == "conv" else (1, 1)
    inputs = 1 if kind == "conv" else PIXELS
    stem = positions * taps * inputs * width
    blocks = depth * positions * taps * width * width
    head = positions * width * CLASSES
    return 2.0 * (2 * stem + 3 * blocks + 3 * head)
