"""Arms over code versions: the change since the version before, and where the level changes for good.

Versions of several sweeps were measured at different times, so nothing pairs them. What a reader can trust
more than the times is the ratio to the reference, which was measured beside the arm in every round of each
version. Commits that are arms of one sweep are paired: see `commit_versions`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from perfsweep.pipelines.analysis.baselines import Baseline, Change, common_clock, compare_baselines
from perfsweep.pipelines.analysis.commit_versions import CommitVersions
from perfsweep.pipelines.statistics.change_points import LEAST_VERSIONS, ChangePoints, find_change_points
from perfsweep.pipelines.statistics.clocks import Clock
from perfsweep.workloads.errors import ConfigError

SLOWER, FASTER = "slower", "faster"


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
    """What is compared over all versions: log times, or log ratios to the reference, one for each version.

    `low` and `high` are the quartiles of its rounds.
    """

    clock: Clock
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
    clock = common_clock(having)
    having = [one.by(clock) for one in having]
    versions = [
        _version(before, now, label, margin, paired, clock)
        for before, now in zip([None, *having], having, strict=False)
    ]
    series = _series(having, label, clock, interleaved=paired is not None)
    reason = _why_no_points(having, label)
    points = None if reason else find_change_points(series.values)
    levels = {point.index: math.exp(point.shift) for point in points.points} if points else {}
    marked = tuple(replace(one, level=levels.get(place)) for place, one in enumerate(versions))
    return ArmHistory(label, marked, series, points, reason)


def _version(
    before: Baseline | None,
    now: Baseline,
    label: str,
    margin: float,
    paired: CommitVersions | None,
    clock: Clock,
) -> Version:
    changes = compare_baselines(before, now) if before else None
    change = next((one for one in changes.changes if one.label == label), None) if changes else None
    if before and changes and paired:
        change = paired.change(before, now, label, clock) or change
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
        direction=direction(change, margin, relative=elsewhere) if change else "",
    )


def direction(change: Change, margin: float, *, relative: bool) -> str:
    """slower or faster where the interval says so, else nothing."""
    _, low, high = (
        (change.relative or (1.0, None, None)) if relative else (change.ratio, change.low, change.high)
    )
    if low is None or high is None:
        return ""
    return SLOWER if low > 1 + margin else FASTER if high < 1 / (1 + margin) else ""


def _why_no_points(having: Sequence[Baseline], label: str) -> str:
    """Say why change points are not looked for; empty where they are."""
    if len(having) < LEAST_VERSIONS:
        return f"fewer than {LEAST_VERSIONS} versions ({len(having)})"
    if not _on_several_devices(having):
        return ""
    reference = having[-1].reference
    if label == reference:
        return "the devices differ, and it is the reference"
    beside = all(
        one.reference == reference and one.rounds[label].keys() & one.rounds.get(reference, {}).keys()
        for one in having
    )
    return "" if beside else "the devices differ, and not every version measured it beside the same reference"


def _on_several_devices(having: Sequence[Baseline]) -> bool:
    return len({one.device for one in having}) > 1


def _series(having: Sequence[Baseline], label: str, clock: Clock, *, interleaved: bool) -> Series:
    """Read what is compared: times, or ratios to the reference where the devices differ."""
    beside = _on_several_devices(having) and not _why_no_points(having, label)
    rounds = [_log_times(one, label, beside) for one in having]
    if interleaved:
        rounds = _without_drift(rounds)
    quartiles = [np.quantile(list(one.values()), (0.25, 0.5, 0.75)).tolist() for one in rounds]
    low, middle, high = zip(*quartiles, strict=True)
    return Series(clock, beside, middle, low, high)


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
