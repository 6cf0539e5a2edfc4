"""Commits that one sweep measured as arms, as the versions of a history: every round has all of them.

Their changes are judged by ratios within rounds, as effects of the sweep are: nothing that moves the machine
from one version to the next is part of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from perfsweep.pipelines.analysis.baselines import Baseline, Change, baseline_from, usable_trials
from perfsweep.pipelines.analysis.judging import rounds_of
from perfsweep.pipelines.statistics.clocks import Clock
from perfsweep.pipelines.statistics.log_ratios import Rounds
from perfsweep.pipelines.store.records import Arm, Manifest
from perfsweep.pipelines.versions.notices import ENVIRONMENT
from perfsweep.workloads.errors import RecordError

ArmOf = Mapping[tuple[str, str], str]
"""Ids of arms by the name of their version and their label without it."""


@dataclass(frozen=True)
class _Weighted:
    """A sum of log times of arms."""

    weights: Mapping[str, float]


@dataclass(frozen=True)
class CommitVersions:
    """The versions of one sweep, in the order in which its axis names them."""

    baselines: tuple[Baseline, ...]
    times: Mapping[Clock, Rounds]
    arms: ArmOf

    def change(self, then: Baseline, now: Baseline, label: str, clock: Clock) -> Change | None:
        """Estimate the change of an arm from the rounds that measured both versions; None without any."""
        arm, base = self.arms[now.sweep, label], self.arms[then.sweep, label]
        ratio, low, high = self._ratio({arm: 1.0, base: -1.0}, clock)
        beside = self._beside(then, now, label, clock)
        return None if ratio is None else Change(label, ratio, low, high, beside)

    def _beside(
        self, then: Baseline, now: Baseline, label: str, clock: Clock
    ) -> tuple[float, float | None, float | None] | None:
        """Estimate the same of the ratio to the reference; None of the reference itself."""
        sides = [
            (self.arms[one.sweep, label], self.arms.get((one.sweep, one.reference))) for one in (now, then)
        ]
        (arm, reference), (base, base_reference) = sides
        if label == now.reference or reference is None or base_reference is None:
            return None
        ratio, *bounds = self._ratio({arm: 1.0, base: -1.0, reference: -1.0, base_reference: 1.0}, clock)
        return None if ratio is None else (ratio, bounds[0], bounds[1])

    def _ratio(
        self, weights: Mapping[str, float], clock: Clock
    ) -> tuple[float | None, float | None, float | None]:
        estimate = self.times[clock].estimate(_Weighted(weights))
        if not math.isfinite(estimate.log_ratio):
            return None, None, None
        low, high = estimate.interval.ratios if estimate.interval else (None, None)
        return math.exp(estimate.log_ratio), low, high


def commit_versions(manifest: Manifest, unit: str, trials: pl.DataFrame) -> CommitVersions | None:
    """Read the versions of a sweep whose arms differ by the user's code; None of any other.

    Raises
    ------
    RecordError
        No round of any version is finished.
    """
    if not (toggle := _toggle(manifest)):
        return None
    used, choice = usable_trials(manifest, trials)
    versions = _in_order(manifest, toggle)
    own = {level: _own_arms(manifest, toggle, level) for level, _ in versions}
    baselines = []
    for level, commit in versions:
        renamed = used.filter(pl.col("arm").is_in(list(own[level]))).with_columns(
            pl.col("arm").replace_strict(own[level], return_dtype=pl.String).alias("label")
        )
        if renamed.height:
            one = baseline_from(manifest, unit, renamed, choice, level, commit)
            baselines.append(one.model_copy(update={"reference": _reference(manifest, toggle)}))
    if not baselines:
        raise RecordError(f"{manifest.sweep.name} has no finished round of any version yet")
    times = {Clock.WALL: rounds_of(used, Clock.WALL.figure)}
    if all(one.cpu_rounds for one in baselines):
        times[Clock.CPU] = rounds_of(used, Clock.CPU.figure)
    arms = {(level, label): arm for level, by_arm in own.items() for arm, label in by_arm.items()}
    return CommitVersions(tuple(baselines), times, arms)


def _in_order(manifest: Manifest, toggle: str) -> list[tuple[str, str]]:
    """List the levels of the axis with their commits, "" of the checkout, in the order of their arms."""
    commits = {one.levels[toggle]: one.commit or "" for one in manifest.sweep.versions if one.sources}
    levels = dict.fromkeys(str(arm.levels[toggle]) for arm in manifest.arms)
    return [(level, commits[level]) for level in levels if level in commits]


def _toggle(manifest: Manifest) -> str:
    """Name the toggle whose levels are commits; empty where there is none."""
    names = (name for one in manifest.sweep.versions if one.sources for name in one.levels)
    return next((name for name in names if name != ENVIRONMENT), "")


def _own_arms(manifest: Manifest, toggle: str, level: str) -> dict[str, str]:
    """Ids of the arms that run a version, with their labels without it."""
    return {arm.id: _label(arm, toggle) for arm in manifest.arms if str(arm.levels[toggle]) == level}


def _label(arm: Arm, toggle: str) -> str:
    """The label of an arm, but for its version."""
    parts = [part for part in arm.label.split(",") if part != f"{toggle}={arm.levels[toggle]}"]
    return ",".join(parts) or "baseline"


def _reference(manifest: Manifest, toggle: str) -> str:
    first = next(iter(manifest.sweep.references.values()))
    return _label(manifest.arm(first), toggle)
