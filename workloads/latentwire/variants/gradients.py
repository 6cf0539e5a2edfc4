"""How gradients of a window add up: rows at a time, rows of a step, and when backward passes run."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Level, Levels, Numbers, Parity, Toggle
from perfsweep.workloads.latentwire.presets import KINDS
from perfsweep.workloads.latentwire.variants.part import Part
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    from torch import Tensor

    from perfsweep.workloads.latentwire.data.batches import Piece, Shape, Window


class BackwardEach(Part):
    """A backward pass for each piece: no graph is kept."""

    def kept(self, loss: Tensor | None) -> list[Tensor]:
        """Nothing, after the backward pass."""
        if loss is not None:
            self.backward(loss)
        return []


class BackwardPerModel(Part):
    """A backward pass for each model, to the latents, and one through the encoder."""

    def all_models(self, z: Tensor, piece: Piece, first: bool) -> tuple[Tensor | None, list[Tensor]]:
        """Terms [6] of each model; gradients are in place."""
        import torch

        leaf, terms = z.detach().requires_grad_(), []
        for number in self.models:
            loss, of_model = self.model_loss(number, leaf, piece)
            terms.append(torch.cat((of_model, loss.detach().reshape(1))))
            self.backward(loss)
        if first:
            self.backward(self.scale_penalty())
        with self.phase("backward"):
            z.backward(leaf.grad)
        self.counts["backward_calls"] += 1
        return None, terms


class RowsAtATime(Part):
    """As many rows in a piece as the level says."""

    def rows_at_a_time(self, shape: Shape) -> int:
        """Rows of a piece."""
        return int(self.levels["micro_batch"])


class RowsThatFit(Part):
    """As many rows in a piece as memory takes, measured on windows of the longest examples."""

    def rows_at_a_time(self, shape: Shape) -> int:
        """Rows of a piece, the same for all ranks."""
        from perfsweep.workloads.latentwire.training.micro_batch import rows_that_fit

        own = self.config.memory_mb
        limits = (self.context.memory_budget, None if own is None else own * 2**20)
        budget = min((limit for limit in limits if limit is not None), default=None)
        return self.least(rows_that_fit(self.corpus, shape, self.attempt, self.device, budget))

    def attempt(self, window: Window) -> None:
        """Gradients of a window on the host: no second try, and no gradients, random numbers or counts."""
        states = random_states()
        try:
            self.all_pieces([piece.map(self.copied) for piece in window.pieces])
        finally:
            self.optimizer.zero_grad(set_to_none=True)
            restore(states)
            self.counts.clear()


class Batch(Part):
    """Rows of an optimiser step."""

    @property
    def batch(self) -> int:
        """As many as the level says."""
        return int(self.levels["effective_batch"])


def random_states() -> list[Any]:
    """The states of all generators that a step draws from."""
    import torch

    cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None
    return [torch.get_rng_state(), cuda]


def restore(states: list[Any]) -> None:
    """Put generators back to where `random_states` found them."""
    import torch

    torch.set_rng_state(states[0])
    if states[1] is not None:
        torch.cuda.set_rng_state(states[1])


def effective_batch(baseline: int) -> Toggle:
    """The toggle of that name, whose baseline is the batch of a preset."""
    other = Level(0, parity=Parity.STOCHASTIC, refused=_few_examples, witness="examples_per_step")
    return Toggle(
        "effective_batch",
        (
            Level(baseline, refused=_few_examples),
            *(dataclasses.replace(other, value=size) for size in (256, 1024)),
        ),
        "examples of one optimiser step",
        "5",
        Numbers(1, like=other),
    )


@functools.lru_cache(maxsize=8)
def _examples(file: str, data_format: str, unanswerable: str, written: int) -> int:
    """Examples of a file as it was `written`, with the ones that no training can use."""
    from perfsweep.workloads.latentwire.data import readers

    return len(readers.read(Path(file), data_format, unanswerable))


def _few_examples(config: Any, levels: Levels) -> str | None:
    data = getattr(config, "data", KINDS[0])
    if data in KINDS or not Path(data).is_file():
        return None
    found = _examples(data, config.data_format, config.unanswerable, Path(data).stat().st_mtime_ns)
    there = config.data_n or found - config.held_out
    if int(levels["effective_batch"]) <= there:
        return None
    return (
        f"workload.data={config.data} has {there} examples without the {config.held_out} that"
        " workload.held_out keeps for the evaluation: give more examples, or toggles.effective_batch from 1"
        f" to {there}"
    )


def _micro_batch(config: Any, levels: Levels) -> str | None:
    piece, whole = levels["micro_batch"], levels["effective_batch"]
    for option in ("manifold", "adaptive_first"):
        if getattr(config, option, False) and piece != whole:
            return f"workload.{option}=true takes statistics of the whole batch: use micro_batch={whole}"
    if not isinstance(piece, str) and piece > whole:  # type: ignore[operator]
        return f"a piece cannot be larger than effective_batch={whole}"
    return None


_PIECES: dict[str, Any] = {"refused": _micro_batch, "witness": "micro_steps"}
_BATCH = 64

VARIANTS = (
    Variant(
        Toggle(
            "accum",
            choices("graph_sum", "backward_each", witness="graphs_kept"),
            "sum losses of pieces before one backward pass, or run one for each",
            "4",
        ),
        {"backward_each": BackwardEach},
    ),
    Variant(
        Toggle(
            "model_backward",
            choices("joint", "per_model", requires={"accum": ("backward_each",)}, witness="backward_calls"),
            "one backward pass for all models, or one for each",
        ),
        {"per_model": BackwardPerModel},
    ),
    Variant(
        shared.micro_batch(
            *(1, 8, 32, 64, "auto"), every=_PIECES, each={1: {"refused": _micro_batch}}, source="5"
        ),
        {"auto": RowsThatFit},
        RowsAtATime,
    ),
    # The naive path takes the batch of its preset, which may be another than the first level here.
    Variant(effective_batch(_BATCH), {_BATCH: Batch}, Batch),
)
