"""Training a small classifier on scikit-learn's digits: the shared toggles in a minute.

This is also the template for a training of your own: `build` says what is trained, and `Training` does the
rest. What digits adds is evidence, counters and cost of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from perfsweep.workloads.api import Context, Evidence, Levels, Work
from perfsweep.workloads.digits import data, declaration
from perfsweep.workloads.digits.config import DigitsConfig
from perfsweep.workloads.digits.data import CLASSES, PIXELS
from perfsweep.workloads.toggles import product_type
from perfsweep.workloads.training.loop import Training, flat
from perfsweep.workloads.training.parts import Parts

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


class Digits(declaration.Digits, Training):
    """One iteration: load, forward, backward, update; every few epochs evaluate, collect garbage, save."""

    def build(self, config: DigitsConfig, levels: Levels, context: Context) -> Parts:
        """The network, drawn on the host so that every device starts from the same values, and the rows."""
        self._digits = data.load_digits()
        train, held_out = self._digits.split(config.train_rows)
        network = Classifier(config.model, config.width, config.depth)

        def optimizer(parameters: Any, **how: Any) -> torch.optim.Optimizer:
            return torch.optim.AdamW(parameters, lr=config.lr, weight_decay=config.weight_decay, **how)

        return Parts(
            network,
            data.DigitRows(train),
            loss,
            optimizer,
            blocks=list(network.blocks),
            held_out=data.DigitRows(held_out),
            evaluate=accuracy,
            evaluate_every=config.eval_every * config.epoch,
            save_every=config.checkpoint_every * config.epoch,
            fullgraph=True,
        )

    def numbers(self) -> dict[str, float]:
        """Figures of every training, and the norm of all parameters."""
        return {**super().numbers(), "parameter_norm": flat(self.model.parameters()).norm().item()}

    def evidence(self) -> Evidence:
        """What every training shows, and the probe's logits [N, classes] along the arm's own path."""
        shown = super().evidence()
        shown.tensors["probe_logits"] = self._probe_logits()
        return shown

    def _probe_logits(self) -> Tensor:
        pieces = self._pieces(self.probe())
        with self._autocast:
            return torch.cat([self._forward(images).detach().float().cpu() for images, _ in pieces])

    def counters(self) -> Mapping[str, float]:
        """Counts of every training, and updates that fp16's scaler skipped because gradients overflowed."""
        applied = max((float(state["step"]) for state in self._optimizer.state.values()), default=0.0)
        return {**super().counters(), "skipped_updates": self.iteration - applied}

    def work(self) -> Work:
        """Products of one example's forward and backward pass; evaluation is left out."""
        flops = training_flops(self.config.model, self.config.width, self.config.depth)
        return Work(flops, products=product_type(self.levels))

    def data_digest(self) -> str:
        """SHA-256 of all examples."""
        return self._digits.digest()


def loss(network: Any, images: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy [] of images [N, P] float32 in [0, 1] with labels [N] int64."""
    return F.cross_entropy(network(images), labels)


def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> dict[str, float]:
    """Share of examples that are classified correctly."""
    return {"accuracy": (network(images).argmax(dim=1) == labels).float().mean().item()}
