"""The naive path of the SPD report, as upstream has it (goodfire-ai/spd, run_spd.py), by its behaviour.

Read it first: the frozen target runs on a batch; importance functions say which subcomponents of each module
the batch needs; masks made from them replace the weights in one pass after another, and every term asks how
far a masked output is from the target's. Adversarial terms search for the worst masks first. It knows no
toggle. Each toggle is a class in `variants` that replaces some of these methods; an arm is this class with
those of its levels before it. Batches, logging and checkpoints are around it, in `training.loop`.

B rows, S positions of a language model, f features of a vector, C subcomponents of a module. Tensors of
several modules are in stacks, see `maths.sites`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from perfsweep.workloads.api import Clock
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.spd.maths import losses, random_draws
from perfsweep.workloads.spd.maths.adversarial_sources import KeptSources, Spread, ascend, split
from perfsweep.workloads.spd.maths.decomposition import Decomposition
from perfsweep.workloads.spd.maths.losses import Divergence, RecomputedKl, SquaredError
from perfsweep.workloads.spd.maths.masked_passes import Masking, Moment, chosen, evaluate, make_masks, singly
from perfsweep.workloads.spd.maths.masked_products import (
    Call,
    SiteMask,
    check_waiting,
    two_step,
    with_bias,
    with_delta,
)
from perfsweep.workloads.spd.maths.random_draws import Draws, Routes
from perfsweep.workloads.spd.maths.sites import Operands, Site, Stacks, each, weight_of
from perfsweep.workloads.spd.presets import LossSpec
from perfsweep.workloads.spd.training.loop import Loop
from perfsweep.workloads.spd.training.updates import Updates
from perfsweep.workloads.training import precision

MASK_SEED = 7919  # apart from the seed of values and data


class Reference(Loop):
    """The naive path. It takes an arm's levels for its variants, and looks at none of them.

    Raises
    ------
    ConfigError
        Data, target and configuration do not fit one another; nothing has been written by then.
    """

    tf32 = False
    """Whether products may round to TF32."""
    fused_target = False
    """Whether the target's activation, norm and rotary positions are PyTorch's fused ones."""
    stacked = False
    """Whether modules of one shape are in one tensor."""
    folds = False
    """Whether deltas are folded into the sum instead of multiplied with."""
    amp, update, capturable = "off", "default", False
    """Type of products, form of the optimiser, and whether its rate and counts are on the device."""

    check: Callable[[Tensor], None] = staticmethod(check_waiting)
    """Test of every mask."""
    unmasked = staticmethod(two_step)
    """Products where there is no mask."""
    fill = staticmethod(random_draws.fill)
    """Fills tensors with random numbers."""
    faithfulness_of, minimality_of = (staticmethod(losses.faithfulness), staticmethod(losses.minimality))
    """The terms without passes."""

    # What is made once.

    def build(self) -> None:
        """Make what iterations use."""
        recipe, config = self.recipe, self.config
        self.site_of = {site.name: site for site in self.sites}
        self.names = tuple(self.site_of)
        self.held: Moment | None = None
        self.ends: list[Callable[[], None]] = []
        self.target.to(self.device, self.dtype)
        self.decomposition = Decomposition(
            self.sites, recipe, self.context.seed, self.dtype, self.stacked, config.sigmoid
        ).to(self.device)
        self.patch()
        self.autocast = precision.autocast(self.amp, self.device)
        self.order = self.execution_order()
        self.draws = self.drawing(self.context.seed * 2 + MASK_SEED, config.frozen_draws)
        self.kept = KeptSources(self.draws, recipe.steps)
        self.updates = Updates(
            recipe,
            self.decomposition.component_parameters(),
            self.decomposition.importance_parameters(),
            self.update,
            self.capturable,
            self.amp,
        )

    @property
    def multiplies_deltas(self) -> bool:
        """Whether masked passes multiply with what components leave over of a weight."""
        return self.config.delta_component

    @property
    def pieces(self) -> int:
        """Pieces of a batch, one after the other."""
        return self.config.microbatches

    def patch(self) -> None:
        """Put components in the place of weights for good: hooks do it in each pass."""

    def execution_order(self) -> list[str]:
        """Names in the order in which a pass meets the modules, found by looking at one."""
        with torch.no_grad():
            _, inputs = self.cached(self.on_device(self.rows.values[:1]))
        self.counts.clear()
        if missing := [name for name in self.names if name not in inputs]:
            raise ConfigError(
                f"workload.modules: {missing[0]} is never called in a pass of the target, which reads its"
                " weight in another way; leave it out"
            )
        return list(inputs)

    def drawing(self, seed: int, frozen: bool) -> Draws:
        """Random numbers of this decomposition, from a generator of their own."""
        return Draws(
            self.sites,
            self.order,
            self.decomposition.groups,
            torch.Generator(self.device).manual_seed(seed),
            self.dtype,
            self.config.canonical_draws,
            frozen,
            self.recipe.batch,
            self.fill,
            self.config.delta_component,
        )

    def warm_up(self) -> None:
        """Bring V U close to W before training, by an optimiser of its own."""
        recipe = self.recipe
        if not recipe.warmup_steps:
            return
        parameters = self.decomposition.component_parameters()
        optimizer = torch.optim.AdamW(parameters, lr=recipe.warmup_lr, weight_decay=recipe.warmup_decay)
        for _ in range(recipe.warmup_steps):
            loss = losses.faithfulness(self.deltas(self.decomposition.operands()))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    # One iteration.

    def advance(self, batch: Tensor, clock: Clock) -> tuple[dict[str, Tensor], Stacks]:
        """Gradients and update of one iteration; its terms [], and the importances of the last microbatch."""
        self.updates.zero()
        found = self.gradients(batch, clock)
        with clock.phase("optimizer"):
            self.updates.apply()
        for end in self.ends:  # persistent sources take their gradients
            end()
        self.ends.clear()
        return found

    def gradients(self, batch: Tensor, clock: Clock) -> tuple[dict[str, Tensor], Stacks]:
        """Add up the gradients of all microbatches."""
        pieces, decomposition = self.pieces, self.decomposition
        with clock.phase("deltas"):
            deltas = self.deltas(decomposition.operands()) if self.needs_deltas else None
        operands = decomposition.operands(deltas if self.multiplies_deltas else None)
        p = self.exponent()
        sums: dict[str, Tensor] = {}
        lower: Stacks = {}
        rows = len(batch) // pieces
        totals = []
        for number in range(pieces):
            piece = slice(number * rows, (number + 1) * rows) if pieces > 1 else slice(None)
            self.draws.begin(piece)
            terms, total, lower = self.microbatch(batch[piece], operands, deltas, p, clock)
            with clock.phase("backward"):
                # All microbatches share the deltas' graph, so only the last may take it apart.
                self.updates.backward(total / pieces, retain=number < pieces - 1 and deltas is not None)
            totals.append(total.detach())
            sums = {name: sums.get(name, 0) + term.detach() / pieces for name, term in terms.items()}
        self.total = torch.stack(totals).mean() if pieces > 1 else totals[0]
        return sums, lower

    def exponent(self) -> float | Tensor:
        """Of the minimality, in this iteration."""
        return losses.annealed_p(self.recipe, self.step)

    def microbatch(
        self,
        batch: Tensor,
        operands: Mapping[str, Operands],
        deltas: Mapping[str, Tensor] | None,
        p: float | Tensor,
        clock: Clock,
    ) -> tuple[dict[str, Tensor], Tensor, Stacks]:
        """Terms [] of some rows, their weighted sum [], and the importances for masks."""
        if self.held is not None:
            self.counts["held_bytes"] = max(self.counts["held_bytes"], self.held.held_bytes())
        moment = self.moment(batch, operands, clock, self.draws)
        terms = self.terms(moment, deltas, p, clock)
        lower = {names: ci.detach() for names, ci in moment.lower.items()}
        self.hold(moment)
        return terms, self.weighted(terms), lower

    def weighted(self, terms: Mapping[str, Tensor]) -> Tensor:
        """sum of coefficient * term []"""
        return torch.stack([spec.coeff * terms[spec.kind] for spec in self.recipe.losses]).sum()

    def hold(self, moment: Moment) -> None:
        """What a loop's local names do: they hold on until the next iteration overwrites them."""
        self.held = moment

    # The target, its components and their importances.

    @property
    def needs_deltas(self) -> bool:
        """Whether an iteration takes D = W - (V U)^T."""
        return self.multiplies_deltas or any(loss.kind == "faithfulness" for loss in self.recipe.losses)

    def deltas(self, operands: Mapping[str, Operands]) -> dict[str, Tensor]:
        """D by name, with gradients towards V and U. Autocast is off: rounding would drown what is left."""
        with torch.autocast(self.device.type, enabled=False):
            return {
                site.name: self.weight(site).to(operands[site.name].V)
                - (operands[site.name].V @ operands[site.name].U).T
                for site in self.sites
            }

    def weight(self, site: Site) -> Tensor:
        """W [out, in], looked up in the target."""
        self.counts["weight_fetches"] += 1
        return weight_of(self.target.get_submodule(site.name), site.kind, site.d_in)

    def moment(
        self, batch: Tensor, operands: Mapping[str, Operands], clock: Clock, draws: Draws | None = None
    ) -> Moment:
        """The target's pass and the importances of a microbatch.

        Parameters
        ----------
        draws : shake the importances of masks where sources are binomial; None: nothing does
        """
        with clock.phase("target"), torch.no_grad(), self.autocast:
            between = self.between()
            output, inputs = self.cached(batch, between)
            moment = Moment(batch, inputs, between or [], self.distance(output), operands=dict(operands))
        with clock.phase("importance"), self.autocast:
            shakes = draws is not None and self.config.sampling == "binomial"
            noise = draws.noise(moment.lead) if draws is not None and shakes else None
            moment.lower, moment.upper = self.importances(inputs, noise)
        return moment

    def between(self) -> list[Tensor] | None:
        """Takes what each stage of the target reads; None: every pass begins at the beginning."""
        return None

    def distance(self, output: Tensor) -> Divergence:
        """How far predictions are from the target's output."""
        return SquaredError(output) if self.spec.reads_vectors else RecomputedKl(output, self.counts)

    def importances(self, inputs: Mapping[str, Tensor], noise: Stacks | None) -> tuple[Stacks, Stacks]:
        """Importances for masks and for minimality, of what modules read."""
        return self.decomposition.importances(inputs, noise)

    # The terms.

    def terms(
        self, moment: Moment, deltas: Mapping[str, Tensor] | None, p: float | Tensor, clock: Clock
    ) -> dict[str, Tensor]:
        """Every term [] of the recipe by kind."""
        found = {}
        for spec in self.recipe.losses:
            with clock.phase(f"loss_{spec.kind}"):
                if spec.kind == "faithfulness":
                    assert deltas is not None
                    found[spec.kind] = self.faithfulness(deltas)
                elif spec.kind == "minimality":
                    found[spec.kind] = self.minimality(moment.upper, p)
                else:
                    with self.autocast:
                        found[spec.kind] = self.reconstruction(moment, spec)
        return found

    def faithfulness(self, deltas: Mapping[str, Tensor]) -> Tensor:
        """How far V U is from the weights [], in full precision."""
        with torch.autocast(self.device.type, enabled=False):
            return self.faithfulness_of(deltas)

    def minimality(self, upper: Stacks, p: float | Tensor) -> Tensor:
        """How much is needed []."""
        beta = self.recipe.beta
        parts = [self.minimality_of(u, p, beta, len(names) > 1) for names, u in upper.items()]
        return torch.stack(parts).sum()

    def reconstruction(self, moment: Moment, spec: LossSpec) -> Tensor:
        """How far masked outputs are from the target's, per position or element []."""
        return evaluate(self, self.names, moment, spec, self.prepare(moment, spec))

    def prepare(self, moment: Moment, spec: LossSpec) -> list[Masking]:
        """The passes of a term, drawn and searched for; nothing in it belongs to the loss's graph."""
        kind, names = spec.kind, self.names
        if kind == "unmasked":
            return []
        if kind == "ci_masked":
            return [Masking()]
        if kind == "pgd_layerwise":
            return [self.worst(moment, spec, f"{kind}/{one}", self.alone(one, moment.lead)) for one in names]
        if spec.adversarial:
            return [self.worst(moment, spec, kind, self.routed(moment, spec))]
        if spec.persistent:
            return [self.persistent(moment, spec)]
        binomial = self.config.sampling == "binomial"
        drawn = self.draws.stochastic(moment.lead, kind == "stochastic_subset", binomial)
        if kind == "stochastic_layerwise":
            sources, deltas = singly(drawn.components), drawn.deltas and singly(drawn.deltas)
            return [Masking({}, sources, deltas, names=(one,)) for one in names]
        return [self.gathered(Masking({}, drawn.components, drawn.deltas, drawn.routes))]

    def routed(self, moment: Moment, spec: LossSpec) -> Masking:
        """A pass without sources; its routes are drawn where the term is of subsets."""
        return self.gathered(
            Masking(routes=self.draws.routes(moment.lead) if spec.kind.endswith("subset") else None)
        )

    def gathered(self, drawn: Masking) -> Masking:
        """A pass in which modules multiply all positions, routed or not."""
        return drawn

    def alone(self, name: str, lead: torch.Size) -> Masking:
        """A pass of which one module alone counts: the others have routes that are empty."""
        routes: Routes = {
            other: torch.full(lead, other == name, dtype=torch.bool, device=self.draws.device)
            for other in self.names
        }
        return self.gathered(Masking(routes=routes))

    # The search for the worst sources: projected gradient ascent (Madry et al. 2018).

    def worst(self, moment: Moment, spec: LossSpec, term: str, about: Masking) -> Masking:
        """A pass with the sources that a search finds."""
        start = chosen(self.draws.adversarial(moment.lead, spec), about.names)
        components, deltas = split(self.searched(moment, spec, term, about, start), self.draws.delta)
        return replace(about, sources=components, deltas=deltas)

    def searched(self, moment: Moment, spec: LossSpec, term: str, about: Masking, start: Stacks) -> Stacks:
        """Sources [.., C+1] of a term, searched for from where they were drawn."""
        count = self.search_steps(spec)
        lower = moment.lower if about.names is None else singly(moment.lower)
        return self.search(moment, about.of(lower), start, self.step_size(spec), count) if count else start

    def search_steps(self, spec: LossSpec) -> int:
        """Steps of the search in this iteration."""
        return spec.steps

    def step_size(self, spec: LossSpec) -> float:
        """Length of each step."""
        return spec.step_size

    def search(self, moment: Moment, about: Masking, sources: Stacks, size: float, steps: int) -> Stacks:
        """Sources [.., C+1] after some steps of ascent, for the modules and routes of `about`.

        Passes have their whole graph, that of parameters and importances too. Routing has been drawn once.
        """
        about, operands = self.ingredients(about, moment.operands)
        for _ in range(steps):
            sources = ascend(sources, self.source_gradients(moment, about, operands, sources), size)
        return each(Tensor.detach, sources)

    def ingredients(
        self, about: Masking, operands: Mapping[str, Operands]
    ) -> tuple[Masking, Mapping[str, Operands]]:
        """What the passes of a search are made from."""
        return about, operands

    def source_gradients(
        self,
        moment: Moment,
        about: Masking,
        operands: Mapping[str, Operands],
        sources: Stacks,
        spread: Spread = lambda sources: sources,
    ) -> Stacks:
        """Gradients of `search_loss` towards sources, of which `spread` makes those of all positions."""
        leaves = {key: s.detach().requires_grad_(True) for key, s in sources.items()}
        components, deltas = split(spread(leaves), self.draws.delta)
        loss = self.search_loss(moment, replace(about, sources=components, deltas=deltas), operands)
        self.counts["pgd_passes"] += 1
        return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))

    def search_loss(self, moment: Moment, masking: Masking, operands: Mapping[str, Operands]) -> Tensor:
        """What a search makes as large as it can []: the mean over positions."""
        return self.divergence(moment, masking, operands) / moment.divergence.normaliser

    def mean_gradients(self, moment: Moment, about: Masking, sources: Stacks, spread: Spread) -> Stacks:
        """Gradients of the mean over positions towards sources."""
        about, operands = self.ingredients(about, moment.operands)
        return self.source_gradients(moment, about, operands, sources, spread)

    def persistent(self, moment: Moment, spec: LossSpec) -> Masking:
        """A pass with sources that are kept, after some steps on this batch; the loss moves them too."""
        kept, lead = self.kept, moment.lead
        for _ in range(self.search_steps(spec)):
            about = self.routed(moment, spec).of(moment.lower)
            spread = partial(kept.spread, spec, lead=lead)
            gradients = self.mean_gradients(moment, about, kept.of(spec, lead), spread)
            kept.climb(spec, gradients, self.step)
        leaves = {names: s.detach().requires_grad_(True) for names, s in kept.of(spec, lead).items()}
        self.ends.append(lambda: kept.climb_by_loss(spec, leaves, self.step))
        components, deltas = split(kept.spread(spec, leaves, lead), self.draws.delta)
        return replace(self.routed(moment, spec), sources=components, deltas=deltas)

    # One pass, with components at some modules or at none.

    def divergence(self, moment: Moment, masking: Masking, operands: Mapping[str, Operands]) -> Tensor:
        """Sum over positions of the divergence of the masked output []."""
        masks = make_masks(masking)
        return moment.divergence.sum(self.output(moment, masks, operands))

    def output(
        self, moment: Moment, masks: Mapping[str, SiteMask], operands: Mapping[str, Operands]
    ) -> Tensor:
        """The masked output of a microbatch."""
        return self.masked(moment.batch, masks, operands, **self.where(moment, tuple(masks)))

    def inputs(
        self, moment: Moment, masks: Mapping[str, SiteMask], operands: Mapping[str, Operands]
    ) -> dict[str, Tensor]:
        """What each module reads under masks."""
        self.admit(masks)
        inputs: dict[str, Tensor] = {}
        self.run(moment.batch, Call(masks, operands, inputs))
        return inputs

    def where(self, moment: Moment, names: tuple[str, ...]) -> dict[str, Any]:
        """Where a pass that replaces these modules begins: at the beginning."""
        return {}

    def masked(
        self, batch: Tensor, masks: Mapping[str, SiteMask], operands: Mapping[str, Operands], **where: Any
    ) -> Tensor:
        """The output with components at the modules of `masks`."""
        self.admit(masks)
        return self.run(batch, Call(masks, operands), **where)

    def cached(self, batch: Tensor, between: list[Tensor] | None = None) -> tuple[Tensor, dict[str, Tensor]]:
        """The target's own output and what each module reads, in execution order."""
        inputs: dict[str, Tensor] = {}
        return self.run(batch, Call(inputs=inputs), between=between), inputs

    def admit(self, masks: Mapping[str, SiteMask]) -> None:
        """Count a pass and test its masks."""
        self.counts["masked_passes"] += 1
        self.counts["masked_modules"] += len(masks)
        for mask in masks.values():
            if mask.mask is not None:
                self.check(mask.mask)

    def run(self, batch: Tensor, call: Call, **where: Any) -> Tensor:
        """The target's output, with hooks of this pass at the modules that it is about."""
        handles = []
        try:
            for name in self.names if call.inputs is not None else call.masks:
                hook = partial(self.hook, call=call, name=name)
                handles.append(self.target.get_submodule(name).register_forward_hook(hook))
                self.counts["hook_registrations"] += 1
            return self.target(batch, **where)
        finally:
            for handle in handles:
                handle.remove()

    def hook(
        self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor, call: Call, name: str
    ) -> Tensor | None:
        """What replaces a module's own output [..., out], which has been computed, needed or not."""
        x, mask = args[0], call.masks.get(name)
        if call.inputs is not None:
            call.inputs[name] = x
        if mask is None:
            return None
        found = with_delta(x, self.site_of[name], call.operands[name], mask, self.unmasked)
        found = with_bias(found, module)
        return found if mask.route is None else torch.where(mask.route.unsqueeze(-1), found, output)
