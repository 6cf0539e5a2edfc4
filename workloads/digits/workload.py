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
from perfsweep.workloads.digits import data, declaration, model
from perfsweep.workloads.digits.config import DigitsConfig
from perfsweep.workloads.toggles import product_type
from perfsweep.workloads.training.loop import Training, flat
from perfsweep.workloads.training.parts import Parts


class Digits(declaration.Digits, Training):
    """One iteration: load, forward, backward, update; every few epochs evaluate, collect garbage, save."""

    def build(self, config: DigitsConfig, levels: Levels, context: Context) -> Parts:
        """The network, drawn on the host so that every device starts from the same values, and the rows."""
        self._digits = data.load_digits()
        train, held_out = self._digits.split(config.train_rows)
        network = model.Classifier(config.model, config.width, config.depth)

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
        flops = model.training_flops(self.config.model, self.config.width, self.config.depth)
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
