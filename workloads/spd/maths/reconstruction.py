"""Terms of the objective that run masked passes.

Each term has two halves. `prepare` draws its numbers and searches for adversarial sources; nothing in it
belongs to the loss's graph. `evaluate` runs the passes whose divergence is the loss; it draws nothing, so
compiled code may hold all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from perfsweep.workloads.spd.maths.adversarial_search import Search, Steps, split
from perfsweep.workloads.spd.maths.masked_passes import Masking, Moment, Passes, chosen, masks_of, rows_of
from perfsweep.workloads.spd.maths.masked_products import SiteMask
from perfsweep.workloads.spd.maths.persistent_sources import KeptSources
from perfsweep.workloads.spd.maths.random_draws import Draws, Routes
from perfsweep.workloads.spd.maths.sites import Stacks, unstack
from perfsweep.workloads.spd.presets import LossSpec


@dataclass(frozen=True)
class Drawn:
    """One pass to come: everything about its masks but the importances.

    Attributes
    ----------
    sources, deltas : [..., C] and [...]
    routes, rows : which positions run through components, as booleans or as numbers
    names : modules that are replaced, None for all
    """

    sources: Stacks | None = None
    deltas: Stacks | None = None
    routes: Routes | None = None
    rows: Routes | None = None
    names: tuple[str, ...] | None = None

    def masking(self, lower: Stacks) -> Masking:
        """The masks of the pass for some importances."""
        return Masking(lower, self.sources, self.deltas, self.routes, self.names, self.rows)


class Reconstruction:
    """Reconstruction losses of a moment.

    Parameters
    ----------
    kept : sources of persistent terms
    single : layerwise adversarial passes replace one module; else all, with routes that are empty but for one
    gathers : routes become row numbers
    """

    def __init__(
        self,
        passes: Passes,
        draws: Draws,
        search: Search,
        steps: Steps,
        names: Sequence[str],
        binomial: bool = False,
        single: bool = False,
        gathers: bool = False,
        kept: KeptSources | None = None,
    ) -> None:
        self.passes, self.draws, self.search, self.steps = passes, draws, search, steps
        self.names, self.binomial, self.single, self.gathers = tuple(names), binomial, single, gathers
        self.kept = kept or KeptSources(draws, 1)
        self.iteration = 0
        self._ends: list[Callable[[], None]] = []

    def __call__(self, moment: Moment, spec: LossSpec) -> Tensor:
        """The term, per position or element []."""
        return evaluate(self.passes, self.names, moment, spec, self.prepare(moment, spec))

    def after_backward(self) -> None:
        """Let persistent sources take their gradients."""
        for end in self._ends:
            end()
        self._ends.clear()

    def prepare(self, moment: Moment, spec: LossSpec) -> list[Drawn]:
        """The passes of a term, drawn and searched for."""
        if spec.kind == "unmasked":
            return []
        if spec.kind == "ci_masked":
            return [Drawn()]
        if spec.adversarial:
            layerwise = spec.kind == "pgd_layerwise"
            return self._by_layer(moment, spec) if layerwise else [self._adversarial(moment, spec)]
        if spec.persistent:
            return [self._persistent(moment, spec)]
        drawn = self.draws.stochastic(moment.lead, spec.kind == "stochastic_subset", self.binomial)
        if spec.kind == "stochastic_layerwise":
            sources, deltas = _singly(drawn.components), drawn.deltas and _singly(drawn.deltas)
            return [Drawn(sources, deltas, names=(name,)) for name in self.names]
        return [self._gathered(Drawn(drawn.components, drawn.deltas, drawn.routes))]

    def _gathered(self, drawn: Drawn) -> Drawn:
        if not self.gathers or drawn.routes is None:
            return drawn
        return replace(
            drawn, routes=None, rows={name: rows_of(route) for name, route in drawn.routes.items()}
        )

    def _adversarial(self, moment: Moment, spec: LossSpec) -> Drawn:
        return self._worst(moment, spec, spec.kind, self._routed(moment, spec))

    def _routed(self, moment: Moment, spec: LossSpec) -> Drawn:
        """A pass without sources; its routes are drawn where the term is of subsets."""
        routes = self.draws.routes(moment.lead) if spec.kind.endswith("subset") else None
        return self._gathered(Drawn(routes=routes))

    def _persistent(self, moment: Moment, spec: LossSpec) -> Drawn:
        kept, lead = self.kept, moment.lead
        for _ in range(self.steps.of(spec, self.iteration)):
            about = self._routed(moment, spec).masking(moment.lower)
            spread = partial(kept.spread, spec, lead=lead)
            gradients = self.search.mean_gradients(moment, about, kept.of(spec, lead), spread)
            kept.climb(spec, gradients, self.iteration)
        leaves = {names: s.detach().requires_grad_(True) for names, s in kept.of(spec, lead).items()}
        self._ends.append(partial(self._climb, spec, leaves))
        components, deltas = split(kept.spread(spec, leaves, lead), self.draws.delta)
        return replace(self._routed(moment, spec), sources=components, deltas=deltas)

    def _climb(self, spec: LossSpec, leaves: Stacks) -> None:
        """The step with the loss's own gradient, which the backward pass leaves times its coefficient."""
        reached = {names: s.grad / spec.coeff for names, s in leaves.items() if s.grad is not None}
        self.kept.climb(spec, reached, self.iteration)

    def _by_layer(self, moment: Moment, spec: LossSpec) -> list[Drawn]:
        found = []
        for name in self.names:
            about = (
                Drawn(names=(name,))
                if self.single
                else self._gathered(Drawn(routes=self._only(name, moment.lead)))
            )
            found.append(self._worst(moment, spec, f"{spec.kind}/{name}", about))
        return found

    def _only(self, name: str, lead: torch.Size) -> Routes:
        """Routes through one module alone."""
        device = self.draws.device
        return {
            other: torch.full(lead, other == name, dtype=torch.bool, device=device) for other in self.names
        }

    def _worst(self, moment: Moment, spec: LossSpec, term: str, about: Drawn) -> Drawn:
        start = self.steps.start(term, chosen(self.draws.adversarial(moment.lead, spec), about.names))
        count = self.steps.of(spec, self.iteration)
        lower = moment.lower if about.names is None else _singly(moment.lower)
        stepped = replace(spec, step_size=self.steps.size(spec))
        sources = self.search(moment, about.masking(lower), start, stepped, count) if count else start
        self._ends.append(lambda: self.steps.finish(term, sources))
        components, deltas = split(sources, self.draws.delta)
        return replace(about, sources=components, deltas=deltas)


def _singly(stacks: Stacks) -> Stacks:
    """Every module under its own key; unbound once, since picking from a stack fills zeros for the rest."""
    return {(name,): tensor for name, tensor in unstack(stacks).items()}


def evaluate(
    passes: Passes, names: Sequence[str], moment: Moment, spec: LossSpec, drawn: Sequence[Drawn]
) -> Tensor:
    """The term of prepared passes, per position or element []."""
    if spec.kind == "unmasked":
        masks = {name: SiteMask(None) for name in names}
        return moment.divergence.mean(passes.output(moment, masks, moment.operands))
    if spec.kind == "hidden_acts":
        return hidden_acts(passes, moment, masks_of(drawn[0].masking(moment.lower)))
    lower = moment.lower if drawn[0].names is None else _singly(moment.lower)
    sums = [passes.divergence(moment, one.masking(lower), moment.operands) for one in drawn]
    total = sums[0] if len(sums) == 1 else torch.stack(sums).mean()
    return total / moment.divergence.normaliser


def hidden_acts(passes: Passes, moment: Moment, masks: dict[str, SiteMask]) -> Tensor:
    """Squared error of what modules read under masks []; token ids cannot differ and are left out."""
    inputs = passes.inputs(moment, masks, moment.operands)
    read = [name for name, x in moment.inputs.items() if x.is_floating_point()]
    squares = torch.stack([(inputs[name] - moment.inputs[name]).square().sum() for name in read])
    return squares.sum() / sum(moment.inputs[name].numel() for name in read)
