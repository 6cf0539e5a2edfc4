"""One sweep against another: the same arms, measured by other code, on another machine or at another time.

Rounds of two sweeps were not interleaved, so they are not paired. Intervals are Welch's, from the scatter
within each sweep: of its servers, whose rounds share addresses and hash seed, or of its rounds where one
server had them all. How the machine changed between the sweeps is in the change, not in its interval. Within
one sweep an arm and the baseline *are* paired. Their ratio differs less between machines and is compared too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perfsweep.checksums import unsealed
from perfsweep.pipelines.analysis.exclusions import comparable_trials, keys_of
from perfsweep.pipelines.store.files import json_object, read_whole, write_atomically
from perfsweep.pipelines.store.provenance import Provenance
from perfsweep.pipelines.store.records import Manifest
from perfsweep.workloads.errors import ConfigError, RecordError

SAME = ("workload", "config", "method", "data")
"""What must be equal: with another of these the two sweeps did other work, or timed it in another way."""


SLOWER, FASTER = "slower", "faster"

Time = Annotated[float, Field(gt=0, allow_inf_nan=False)]
"""Nanoseconds per unit."""


class Baseline(BaseModel):
    """Times of a sweep for later comparison: times per unit in ns by arm label and round, and the keys.

    `device` and `torch` may differ between baselines and are named where they do; `reference` is the label of
    the first reference arm. `servers` has the seed of each round's server; processes without a server have
    none, and neither have files of earlier versions.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sweep: str
    workload: str
    unit: str
    config: str
    method: str
    data: str
    device: str
    torch: str
    commit: str
    reference: str
    rounds: dict[str, dict[str, Time]]
    servers: dict[str, int] = {}

    def draws(self, values: Mapping[str, float]) -> list[float]:
        """Mean over the rounds of each server; the values of rounds where there is one server only."""
        by_server: dict[object, list[float]] = {}
        for number, value in values.items():
            by_server.setdefault(self.servers.get(number, number), []).append(value)
        means = [fmean(some) for some in by_server.values()]
        return means if len(means) > 1 else list(values.values())


@dataclass(frozen=True)
class Change:
    """An arm then and now: ratio now / then, 95 % interval; `relative` is that of its baseline ratio."""

    label: str
    ratio: float
    low: float | None
    high: float | None
    relative: tuple[float, float | None, float | None] | None

    def direction(self, margin: float, *, relative: bool) -> str:
        """*slower* or *faster* where the interval lies wholly beyond the margin, else empty."""
        _, low, high = (self.relative or (1.0, None, None)) if relative else (self.ratio, self.low, self.high)
        if low is None or high is None:
            return ""
        return SLOWER if low > 1 + margin else FASTER if high < 1 / (1 + margin) else ""


@dataclass(frozen=True)
class Changes:
    """Two baselines compared; `moved` keys differ and may, `missing` arms are in only one of them."""

    then: Baseline
    now: Baseline
    changes: tuple[Change, ...]
    moved: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def other_machine(self) -> bool:
        """Whether times come from different devices, so that only ratios to the baseline compare."""
        return self.then.device != self.now.device

    def regressions(self, margin: float) -> list[Change]:
        """Arms slower by more than the margin; on another device, slower relative to the baseline."""
        directions = (one.direction(margin, relative=self.other_machine) for one in self.changes)
        return [one for one, found in zip(self.changes, directions, strict=True) if found == SLOWER]


def baseline_of(manifest: Manifest, unit: str, trials: pl.DataFrame, provenance: Provenance) -> Baseline:
    """Make the baseline of a sweep that has finished rounds.

    Raises
    ------
    RecordError
        No round is finished.
    """
    used = usable_trials(manifest, trials)
    if used.height == 0:
        raise RecordError(
            f"{manifest.sweep.name} has no finished round of its baseline, so nothing can be compared with it"
        )
    return baseline_from(manifest, unit, used, manifest.sweep.name, provenance.commit)


def usable_trials(manifest: Manifest, trials: pl.DataFrame) -> pl.DataFrame:
    """Pick the timing trials that count, of arms with the first baseline's data."""
    sound = comparable_trials(trials.filter(pl.col("used") & (pl.col("outcome") == "ok")))
    first = next(iter(manifest.sweep.references.values()))
    alike = [arm for arm in sound.data if sound.data[arm] == sound.data.get(first)]
    return sound.trials.filter(pl.col("arm").is_in(alike))


def baseline_from(manifest: Manifest, unit: str, used: pl.DataFrame, sweep: str, commit: str) -> Baseline:
    """Make a baseline of timing trials, under the name that the versions of a history have."""
    keys = keys_of(str(used["keys"][0]))
    first = next(iter(manifest.sweep.references.values()))
    return Baseline(
        sweep=sweep,
        workload=manifest.sweep.workload,
        unit=unit,
        config=json.dumps(manifest.sweep.config, sort_keys=True),
        method=manifest.sweep.measure.method,
        data=keys.get("data", ""),
        device=keys.get("device", ""),
        torch=keys.get("torch", ""),
        commit=commit,
        reference=manifest.arm(first).label,
        rounds=_times(used),
        servers={
            _round(pack, number): server
            for pack, number, server in used.select("pack", "round", "server").iter_rows()
            if server is not None
        },
    )


def _round(pack: str, number: int) -> str:
    return f"{pack}-{number}"


def _times(used: pl.DataFrame) -> dict[str, dict[str, float]]:
    """Times per unit by arm label and round.

    Raises
    ------
    RecordError
        A time is none: zero, negative, or not a number.
    """
    times: dict[str, dict[str, float]] = {}
    for label, pack, number, time in used.select("label", "pack", "round", "ns_per_unit").iter_rows():
        if time is None or not 0 < time < math.inf:
            where = f"{label} in round {number} of pack {pack}"
            raise RecordError(f"the time of {where} is {time}; delete that trial's folder")
        times.setdefault(label, {})[_round(pack, number)] = time
    return times


def store(baseline: Baseline, file: Path) -> None:
    """Write a baseline as a file that can be committed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json_object(json.loads(baseline.model_dump_json())))


def load(file: Path) -> Baseline:
    """Read what `store` wrote.

    Raises
    ------
    ConfigError
        The file is missing, or no baseline.
    """
    try:
        return Baseline.model_validate(unsealed(dict(json.loads(read_whole(file)))))
    except OSError as error:
        raise ConfigError(
            f"{file}: {error.strerror or error}; give a sweep's folder, or a file that `perfsweep compare"
            " --store` wrote"
        ) from error
    except (ValidationError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{file} is no baseline that `perfsweep compare --store` wrote: {str(error).splitlines()[0]}"
        ) from error


def compare_baselines(then: Baseline, now: Baseline) -> Changes:
    """Compare every arm that both have.

    Raises
    ------
    ConfigError
        They did other work, or measured it in another way; the message names what differs.
    """
    for name in SAME:
        before, after = getattr(then, name), getattr(now, name)
        if before != after:
            raise ConfigError(
                f"{now.sweep} cannot be compared with {then.sweep}: {name} differs"
                f" ({_difference(name, before, after)}); measure both with the same work and the same"
                " measuring options"
            )
    both = [label for label in now.rounds if label in then.rounds]
    missing = [label for label in {**then.rounds, **now.rounds} if label not in both]
    pairs = [(name, getattr(then, name), getattr(now, name)) for name in ("commit", "device", "torch")]
    moved = [f"{name}: {before} -> {after}" for name, before, after in pairs if before != after]
    changes = tuple(_change(then, now, label) for label in both)
    return Changes(then, now, changes, tuple(moved), tuple(missing))


def _difference(name: str, before: str, after: str) -> str:
    if name != "config":
        return f"{before or 'none'} then, {after or 'none'} now"
    then, now = json.loads(before), json.loads(after)
    fields = [
        f"{key}={then.get(key)} then, {now.get(key)} now"
        for key in {**then, **now}
        if then.get(key) != now.get(key)
    ]
    return "; ".join(fields)


def _change(then: Baseline, now: Baseline, label: str) -> Change:
    plain = welch(*(one.draws({n: math.log(t) for n, t in one.rounds[label].items()}) for one in (then, now)))
    relative = None
    if label not in (then.reference, now.reference):
        shares = [_to_reference(one, label) for one in (then, now)]
        relative = welch(*shares) if all(shares) else None
    return Change(label, *plain, relative)


def _to_reference(one: Baseline, label: str) -> list[float]:
    reference = one.rounds.get(one.reference, {})
    return one.draws({n: math.log(t / reference[n]) for n, t in one.rounds[label].items() if n in reference})


def welch(then: Sequence[float], now: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Compute exp of the difference of two means of logs, and its 95 % Welch interval (1947), if n > 1."""
    from scipy.special import stdtrit  # scipy.stats takes seconds to import on a busy host

    a, b = np.asarray(then), np.asarray(now)
    shift = float(b.mean() - a.mean())
    if min(len(a), len(b)) < 2:
        return math.exp(shift), None, None
    parts = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    error = math.sqrt(sum(parts))
    if error == 0:
        return math.exp(shift), math.exp(shift), math.exp(shift)
    degrees = sum(parts) ** 2 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1))
    reach = float(stdtrit(degrees, 0.975)) * error
    return math.exp(shift), math.exp(shift - reach), math.exp(shift + reach)
