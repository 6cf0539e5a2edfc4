"""How the worst sources are searched for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from perfsweep.workloads.api import Level, Parity, Toggle
from perfsweep.workloads.spd.variants.part import Part, moves_sources
from perfsweep.workloads.variant import Variant, choices

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from perfsweep.workloads.spd.maths.adversarial_sources import Moments, Spread
    from perfsweep.workloads.spd.maths.masked_passes import Masking, Moment
    from perfsweep.workloads.spd.maths.sites import Names, Operands, Stacks
    from perfsweep.workloads.spd.presets import LossSpec

PGD_INNER = Toggle(
    "pgd_inner",
    choices("full", "detached", witness="saved_bytes"),
    "adversarial inner passes without the graph of parameters",
    "6.4",
)


class DetachedSearch(Part):
    """Passes of a search without the graph of parameters and importances; signs count, so the sum will do."""

    def ingredients(
        self, about: Masking, operands: Mapping[str, Operands]
    ) -> tuple[Masking, Mapping[str, Operands]]:
        """The same values without a graph."""
        lower = {names: c.detach() for names, c in about.lower.items()}
        return replace(about, lower=lower), {name: pair.detached() for name, pair in operands.items()}

    def search_loss(self, moment: Moment, masking: Masking, operands: Mapping[str, Operands]) -> Tensor:
        """The sum over positions []."""
        return self.divergence(moment, masking, operands)

    def mean_gradients(self, moment: Moment, about: Masking, sources: Stacks, spread: Spread) -> Stacks:
        """Persistent sources move by the size of gradients too."""
        found = super().mean_gradients(moment, about, sources, spread)
        return {names: g / moment.divergence.normaliser for names, g in found.items()}


PGD_LAYERWISE = Toggle(
    "pgd_layerwise",
    choices("all_modules", "single", witness="masked_modules"),
    "layerwise adversarial passes through one module only",
    "6.4",
)


class SingleModule(Part):
    """A layer's own pass replaces that module alone."""

    def alone(self, name: str, lead: torch.Size) -> Masking:
        """Without routes."""
        from perfsweep.workloads.spd.maths.masked_passes import Masking

        return Masking(names=(name,))


_DIFFERENT: dict[str, Any] = {"parity": Parity.STOCHASTIC, "witness": "pgd_passes", "refused": moves_sources}

PGD_STEPS = Toggle(
    "pgd_steps",
    (Level("n"), *(Level(value, **_DIFFERENT) for value in ("schedule", "larger", "every_k", "persistent"))),
    "how many adversarial passes an iteration makes: all, fewer early on, few large ones, every fourth"
    " time, or none",
    "6.4",
)

PERIOD = 4
FEWER = 4


class ScheduledSteps(Part):
    """One step at first, all from half of training on: early masks are far from the worst case."""

    def search_steps(self, spec: LossSpec) -> int:
        """Linear in the iterations done."""
        half = max(self.recipe.steps // 2, 1)
        return min(spec.steps, 1 + (max(spec.steps - 1, 0) * min(self.step, half)) // half)


class LargerSteps(Part):
    """A quarter of the steps, longer to reach as far; no step need exceed the sources' range of 1."""

    def search_steps(self, spec: LossSpec) -> int:
        """One at least."""
        return min(spec.steps, max(spec.steps // FEWER, 1))

    def step_size(self, spec: LossSpec) -> float:
        """Longer by as much as there are fewer."""
        return min(spec.step_size * spec.steps / max(self.search_steps(spec), 1), 1.0)


class EveryFourth(Part):
    """A search in every fourth iteration; the others take the sources as they are drawn."""

    def search_steps(self, spec: LossSpec) -> int:
        """All or none."""
        return spec.steps if self.step % PERIOD == 0 else 0


class KeptSources(Part):
    """No search: sources are kept, and the loss's own backward pass moves them by one step of Adam."""

    def build(self) -> None:
        """Nothing is kept yet."""
        self.kept_sources: dict[str, Stacks] = {}
        self.kept_moments: dict[str, dict[Names, Moments]] = {}
        super().build()

    def searched(self, moment: Moment, spec: LossSpec, term: str, about: Masking, start: Stacks) -> Stacks:
        """Where the last iteration left them; drawn at first."""
        kept = self.kept_sources.setdefault(term, start)
        leaves = {names: s.detach().requires_grad_(True) for names, s in kept.items()}
        self.ends.append(partial(self.ascend_by_loss, term, leaves))
        return leaves

    def ascend_by_loss(self, term: str, sources: Stacks) -> None:
        """Take the gradient that the backward pass leaves."""
        from perfsweep.workloads.spd.maths.adversarial_sources import climbed
        from perfsweep.workloads.spd.specs import Adversary

        moments, moved = self.kept_moments.setdefault(term, {}), {}
        for names, s in sources.items():
            if s.grad is None:
                moved[names] = s.detach()
                continue
            held = moments.get(names)
            moved[names], moments[names] = climbed(s, s.grad, held, Adversary(), Adversary.lr)
        self.kept_sources[term] = moved

    def sources(self) -> dict[str, dict[str, Any]]:
        """With sources and their averages."""
        moments = {term: dict(held) for term, held in self.kept_moments.items()}
        return {**super().sources(), "steps": {"kept": dict(self.kept_sources), "moments": moments}}

    def load_sources(self, sources: Mapping[str, dict[str, Any]]) -> None:
        """Where nothing was kept, sources are drawn."""
        super().load_sources(sources)
        steps = sources["steps"]
        self.kept_sources, self.kept_moments = dict(steps.get("kept", {})), dict(steps.get("moments", {}))


VARIANTS = (
    Variant(PGD_INNER, {"detached": DetachedSearch}),
    Variant(PGD_LAYERWISE, {"single": SingleModule}),
    Variant(
        PGD_STEPS,
        {
            "schedule": ScheduledSteps,
            "larger": LargerSteps,
            "every_k": EveryFourth,
            "persistent": KeptSources,
        },
    ),
)
