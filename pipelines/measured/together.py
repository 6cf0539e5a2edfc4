"""All winners of a sweep together: the second sweep that adds them one after the other, and its results.

Gains are never multiplied. Two levels may save the same time, and then the second level gains nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfsweep.pipelines.analysis.collect import collect
from perfsweep.pipelines.analysis.combinations import Together
from perfsweep.pipelines.analysis.compare import Comparison, compare
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.config.types import DesignConfig, SweepCommand, SweepConfig
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Manifest, SweepFolder, opened
from perfsweep.workloads.errors import PerfsweepError

SUFFIX = "-together"
"""Ends the name of the second sweep."""
SHARE, LEAST_S = 1 / 3, 20.0
"""The second sweep's budget, as a share of the first sweep's, and its minimum: it has fewer arms."""


def second_sweep(command: SweepCommand, manifest: Manifest, comparison: Comparison) -> SweepCommand | None:
    """The command that measures all winners together; None if fewer than two can be combined."""
    won = comparison.winners
    if len(won) < 2 or not command.sweep.together or manifest.sweep.name.endswith(SUFFIX):
        return None
    name = next(iter(manifest.sweep.references))
    base = command.sweep.references.get(name, {})
    own = SweepConfig(
        name=f"{command.sweep.name}{SUFFIX}",
        designs=_designs([_level(one, manifest) for one in won], base),
        references={name: base},
    )
    return replace(
        command,
        sweep=own,
        name=f"{manifest.sweep.name}{SUFFIX}",
        axes={},
        measure=_measure(command.measure),
        keep=None,
        retry=list(command.retry),
    )


def _designs(steps: list[dict[str, Any]], base: Mapping[str, Any]) -> list[DesignConfig]:
    """Designs of each step alone, and of the first two, three ... steps together against the baseline."""
    arms, levels = {}, {**base, **steps[0]}
    for count, step in enumerate(steps[1:-1], 2):
        levels = {**levels, **step}
        arms[f"first {count} steps"] = levels
    return [DesignConfig("chain", steps=steps), *([DesignConfig("arms", arms=arms)] if arms else [])]


def _measure(first: MeasureConfig) -> MeasureConfig:
    budget_s = None if first.budget_s is None else max(LEAST_S, SHARE * first.budget_s)
    return replace(first, budget_s=budget_s, placebo=0, stall=False, target=None)


def _level(result: EffectResult, manifest: Manifest) -> dict[str, Any]:
    toggle = result.effect.toggle
    return {toggle: manifest.arm(result.effect.pairs[0][0]).levels[toggle]}


def with_together(comparison: Comparison, folder: SweepFolder, manifest: Manifest) -> Comparison:
    """Add the results of the second sweep, if there is one of the same winners."""
    second = SweepFolder(folder.path.with_name(folder.path.name + SUFFIX))
    if len(comparison.winners) < 2 or not second.manifest_file.exists():
        return comparison
    try:
        _, own = opened(str(second.path))
        progress = read_progress(second, own)
        found = compare(second, own, collect(second, own, progress), progress)
    except PerfsweepError:
        return comparison  # `perfsweep compare` of that folder shows the error
    chain = [one for one in found.effects if one.effect.design == "chain"]
    if not chain or not _same(comparison.winners, manifest, chain[-1], own):
        return comparison
    return replace(comparison, together=_together(comparison.winners, str(second.path), found.effects, chain))


def _together(
    won: Sequence[EffectResult], folder: str, effects: Sequence[EffectResult], chain: Sequence[EffectResult]
) -> Together:
    *steps, whole = chain
    baseline = whole.effect.pairs[0][1]
    of_pair = {one.effect.pairs[0]: one for one in (*effects, *won)}
    parts = tuple(of_pair.get((step.effect.pairs[0][0], baseline)) for step in steps)
    return Together(folder, whole, tuple(steps), parts)


def _same(won: Sequence[EffectResult], manifest: Manifest, whole: EffectResult, second: Manifest) -> bool:
    """Whether an arm of the same work differs from its base by the levels of all winners, and no others."""
    if whole.ratio is None or _work(manifest) != _work(second):
        return False
    due = {toggle: level for one in won for toggle, level in _level(one, manifest).items()}
    along = {toggle for one in won for toggle in one.effect.also}
    arm, base = (second.arm(name).levels for name in whole.effect.pairs[0])
    moved = {toggle for toggle, level in arm.items() if base.get(toggle) != level}
    return due.items() <= arm.items() and due.keys() <= moved <= due.keys() | along


def _work(manifest: Manifest) -> tuple[object, ...]:
    """Identity of the work: sweeps with different code or configurations cannot be compared."""
    sweep = manifest.sweep
    return sweep.workload, sweep.config, sweep.code
