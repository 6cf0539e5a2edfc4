"""Formula cost of an iteration.

With multiply-adds a token: P = sum of in*out, Q = sum of C (in + out), E = P for deltas (none when folded),
h0 = d v for the head, A = layers * S * d for attention, G for importances:

    tgt = P + h0 + A;  f = tgt + Q + E;  b = P + 2Q + 2E + h0 + 2A;  bi = P + Q + E + h0 + 2A
    FLOP = 2 (T (tgt + 3G + passes (f + b) + inner (f + bi)) + 3 sum of in*out*C)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfsweep.workloads.spd.maths.importance import layer_shapes
from perfsweep.workloads.spd.maths.importance_transformer import products_of
from perfsweep.workloads.spd.maths.sites import Site
from perfsweep.workloads.spd.presets import LossSpec, Recipe, TargetSpec


@dataclass(frozen=True)
class Macs:
    """Multiply-adds of one position, see the module; `deltas` is of a whole iteration."""

    target: float
    importance: float
    forward: float
    backward: float
    inner: float
    deltas: float


def macs(sites: Sequence[Site], spec: TargetSpec, recipe: Recipe, folds: bool) -> Macs:
    """The formula's terms for a decomposition."""
    P = sum(site.d_in * site.d_out for site in sites)
    Q = sum(site.count * (site.d_in + site.d_out) for site in sites)
    E = 0 if folds else P
    head = 0 if spec.reads_vectors else spec.width * spec.vocab
    attention = 0 if spec.reads_vectors else spec.layers * recipe.seq * spec.width
    importance = _importance(sites, recipe)
    target = P + head + attention
    deltas = sum(site.d_in * site.d_out * site.count for site in sites)
    backward = P + head + 2 * attention
    return Macs(target, importance, target + Q + E, backward + 2 * (Q + E), backward + Q + E, 3 * deltas)


def _importance(sites: Sequence[Site], recipe: Recipe) -> int:
    if recipe.transformer is not None:
        return products_of(sites, recipe.transformer, recipe.hidden, recipe.seq)
    shapes = [shape for site in sites for shape, _, _ in layer_shapes(recipe.importance, site, recipe.hidden)]
    return sum(_product(shape) for shape in shapes)


def _product(shape: Sequence[int]) -> int:
    found = 1
    for size in shape:
        found *= size
    return found


def passes_of(loss: LossSpec, modules: int) -> tuple[int, int]:
    """Masked passes with all gradients, and inner passes, of one term."""
    if loss.kind in ("faithfulness", "minimality"):
        return 0, 0
    times = modules if loss.kind.endswith("layerwise") else 1
    return times, times * (loss.steps if loss.adversarial or loss.persistent else 0)


def flops_per_position(sites: Sequence[Site], spec: TargetSpec, recipe: Recipe, folds: bool) -> float:
    """Floating-point operations of one iteration divided by its positions."""
    unit = macs(sites, spec, recipe, folds)
    outer = sum(passes_of(loss, len(sites))[0] for loss in recipe.losses)
    inner = sum(passes_of(loss, len(sites))[1] for loss in recipe.losses)
    each = (
        unit.target
        + 3 * unit.importance
        + outer * (unit.forward + unit.backward)
        + inner * (unit.forward + unit.inner)
    )
    return 2 * (each + unit.deltas / (recipe.batch * recipe.seq))
