"""Arms over code versions: the change since the version before, and where the level changes for good.

Versions of several sweeps were measured at different times, so they are not paired. The ratio to the baseline
is more reliable than the times, because every round of a version measured both. Commits that are arms of one
sweep are paired: every round has all of them. Their changes are judged by ratios within rounds, as effects of
the sweep are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import polars as pl

from perfsweep.pipelines.analysis.baselines import (
    SLOWER,
    Baseline,
    Change,
    baseline_from,
    compare_baselines,
    usable_trials,
)
from perfsweep.pipelines.analysis.judging import rounds_of
from perfsweep.pipelines.statistics.change_points import LEAST_VERSIONS, ChangePoints, find_change_points
from perfsweep.pipelines.statistics.log_ratios import Rounds, Weighted
from perfsweep.pipelines.store.records import Arm, Manifest
from perfsweep.pipelines.versions.environments import ENVIRONMENT
from perfsweep.workloads.errors import ConfigError, RecordError


@dataclass(frozen=True)
class Version:
    """An arm in one version.

    Attributes
    ----------
    ns_per_unit : median of its rounds
    change : since the last version that has the arm; None of the first
    moved : what else differs from that version: commit, torch, device
    direction : *slower* or *faster* where the change says so, else empty
    level : time from here on / time before, where a level begins here; else None
    """

    arm: str
    sweep: str
    commit: str
    rounds: int
    ns_per_unit: float
    change: Change | None
    other_machine: bool
    moved: tuple[str, ...]
    direction: str = ""
    level: float | None = None


@dataclass(frozen=True)
class Series:
    """What is compared over all versions: log times, or log ratios to the baseline, one for each version.

    `low` and `high` are the quartiles of its rounds.
    """

    beside_reference: bool
    values: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class ArmHistory:
    """An arm over its versions; `points` are None where none were looked for, and `reason` says why."""

    arm: str
    versions: tuple[Version, ...]
    series: Series
    points: ChangePoints | None
    reason: str

    @property
    def slower(self) -> bool:
        """Whether it became slower from any version to the next."""
        return any(one.direction == SLOWER for one in self.versions)


@dataclass(frozen=True)
class History:
    """Arms over versions; `unit` and `reference` are those of the newest."""

    unit: str
    reference: str
    margin: float
    interleaved: bool
    versions: int
    arms: tuple[ArmHistory, ...]


def history(
    baselines: Sequence[Baseline],
    arms: Sequence[str] = (),
    margin: float = 0.05,
    paired: CommitVersions | None = None,
) -> History:
    """Follow arms, by their labels, over versions in the order given; without `arms` all of the newest.

    With `paired`, the versions are those of one sweep.

    Raises
    ------
    ConfigError
        No version has an arm, or two that follow one another did other work; the message says what differs.
    """
    newest = baselines[-1]
    followed = [arm_history(baselines, label, margin, paired) for label in arms or newest.rounds]
    return History(newest.unit, newest.reference, margin, paired is not None, len(baselines), tuple(followed))


def arm_history(
    baselines: Sequence[Baseline], label: str, margin: float = 0.05, paired: CommitVersions | None = None
) -> ArmHistory:
    """Follow one arm; versions without it are left out."""
    having = [one for one in baselines if label in one.rounds]
    if not having:
        known = sorted({name for one in baselines for name in one.rounds})
        raise ConfigError(f"--arm {label} is in none of these sweeps; choose from: {', '.join(known)}")
    versions = [
        _version(before, now, label, margin, paired)
        for before, now in zip([None, *having], having, strict=False)
    ]
    series = _series(having, label, interleaved=paired is not None)
    reason = _why_no_points(having, label)
    points = None if reason else find_change_points(series.values)
    levels = {point.index: math.exp(point.shift) for point in points.points} if points else {}
    marked = tuple(replace(one, level=levels.get(place)) for place, one in enumerate(versions))
    return ArmHistory(label, marked, series, points, reason)


def _version(
    before: Baseline | None, now: Baseline, label: str, margin: float, paired: CommitVersions | None
) -> Version:
    changes = compare_baselines(before, now) if before else None
    change = next((one for one in changes.changes if one.label == label), None) if changes else None
    if before and changes and paired:
        change = paired.change(before, now, label) or change
    elsewhere = changes.other_machine if changes else False
    return Version(
        arm=label,
        sweep=now.sweep,
        commit=now.commit,
        rounds=len(now.rounds[label]),
        ns_per_unit=median(now.rounds[label].values()),
        change=change,
        other_machine=elsewhere,
        moved=changes.moved if changes else (),
        direction=change.direction(margin, relative=elsewhere) if change else "",
    )


def _why_no_points(having: Sequence[Baseline], label: str) -> str:
    """Say why change points are not looked for; empty where they are."""
    if len(having) < LEAST_VERSIONS:
        return f"fewer than {LEAST_VERSIONS} versions ({len(having)})"
    if not _on_several_devices(having):
        return ""
    reference = having[-1].reference
    if label == reference:
        return "the devices differ, and it is the baseline"
    together = all(
        one.reference == reference and one.rounds[label].keys() & one.rounds.get(reference, {}).keys()
        for one in having
    )
    return "" if together else "the devices differ, and not every version measured it with the same baseline"


def _on_several_devices(having: Sequence[Baseline]) -> bool:
    return len({one.device for one in having}) > 1


def _series(having: Sequence[Baseline], label: str, *, interleaved: bool) -> Series:
    """Read what is compared: times, or ratios to the baseline where the devices differ."""
    beside = _on_several_devices(having) and not _why_no_points(having, label)
    rounds = [_log_times(one, label, beside) for one in having]
    if interleaved:
        rounds = _without_drift(rounds)
    quartiles = [np.quantile(list(one.values()), (0.25, 0.5, 0.75)).tolist() for one in rounds]
    low, middle, high = zip(*quartiles, strict=True)
    return Series(beside, middle, low, high)


def _log_times(one: Baseline, label: str, beside: bool) -> dict[str, float]:
    times, reference = one.rounds[label], one.rounds.get(one.reference, {})
    if beside:
        return {number: math.log(t / reference[number]) for number, t in times.items() if number in reference}
    return {number: math.log(time) for number, time in times.items()}


def _without_drift(rounds: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """Take from each round what it did to all versions; as they are where no round measured all of them."""
    shared = [number for number in rounds[0] if all(number in one for one in rounds)]
    if not shared:
        return [dict(one) for one in rounds]
    drift = {number: float(np.mean([one[number] for one in rounds])) for number in shared}
    middle = float(np.mean(list(drift.values())))
    return [{number: one[number] - drift[number] + middle for number in shared} for one in rounds]


ArmOf = Mapping[tuple[str, str], str]
"""Ids of arms by the name of their version and their label without it."""


@dataclass(frozen=True)
class CommitVersions:
    """The versions of one sweep, in the order in which its axis names them."""

    baselines: tuple[Baseline, ...]
    times: Rounds
    arms: ArmOf

    def change(self, then: Baseline, now: Baseline, label: str) -> Change | None:
        """Estimate the change of an arm from the rounds that measured both versions; None without any."""
        arm, base = self.arms[now.sweep, label], self.arms[then.sweep, label]
        ratio, low, high = self._ratio({arm: 1.0, base: -1.0})
        beside = self._beside(then, now, label)
        return None if ratio is None else Change(label, ratio, low, high, beside)

    def _beside(
        self, then: Baseline, now: Baseline, label: str
    ) -> tuple[float, float | None, float | None] | None:
        """Estimate the same of the ratio to the baseline; None for the baseline itself."""
        sides = [
            (self.arms[one.sweep, label], self.arms.get((one.sweep, one.reference))) for one in (now, then)
        ]
        (arm, reference), (base, base_reference) = sides
        if label == now.reference or reference is None or base_reference is None:
            return None
        ratio, *bounds = self._ratio({arm: 1.0, base: -1.0, reference: -1.0, base_reference: 1.0})
        return None if ratio is None else (ratio, bounds[0], bounds[1])

    def _ratio(self, weights: Mapping[str, float]) -> tuple[float | None, float | None, float | None]:
        estimate = self.times.estimate(Weighted(weights))
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
    used = usable_trials(manifest, trials)
    versions = _in_order(manifest, toggle)
    own = {level: _own_arms(manifest, toggle, level) for level, _ in versions}
    baselines = []
    for level, commit in versions:
        renamed = used.filter(pl.col("arm").is_in(list(own[level]))).with_columns(
            pl.col("arm").replace_strict(own[level], return_dtype=pl.String).alias("label")
        )
        if renamed.height:
            one = baseline_from(manifest, unit, renamed, level, commit)
            baselines.append(one.model_copy(update={"reference": _reference(manifest, toggle)}))
    if not baselines:
        raise RecordError(f"{manifest.sweep.name} has no finished round of any version yet")
    arms = {(level, label): arm for level, by_arm in own.items() for arm, label in by_arm.items()}
    return CommitVersions(tuple(baselines), rounds_of(used, "ns_per_unit"), arms)


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
