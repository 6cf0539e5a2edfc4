"""Answers about two versions, replayed from recorded trials by the code that stops and judges real sweeps.

A real sweep of two versions that do the same gives the pool. A replay draws whole servers of it, so that what
trials of one server share stays shared, lets chance say which recorded arm stands for the head, multiplies
the head's times by the planted effect, and adds rounds for as long as the shipped rule asks for more.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from perfsweep.pipelines.analysis.collect import TRIALS, Trial
from perfsweep.pipelines.analysis.columns import parquet_table
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.analysis.judging import Judge
from perfsweep.pipelines.plan.packs import balanced_orders
from perfsweep.pipelines.store.options import MeasureConfig
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import (
    Arm,
    Effect,
    Kind,
    Manifest,
    Outcome,
    Pack,
    Sweep,
    SweepFolder,
    TrialRecord,
)
from perfsweep.pipelines.store.schema import Declared
from perfsweep.pipelines.store.stop_rule import StopRule

BASE, HEAD = Arm(id="a" * 16, label="baseline", levels={}), Arm(id="b" * 16, label="commit=head", levels={})
EFFECT = Effect(id="e", design="one_at_a_time", toggle="commit", level="head", pairs=((HEAD.id, BASE.id),))
UNTOUCHED = Declared(unit="step", shape="steps", checks=(), levels={})

Pair = tuple[TrialRecord, TrialRecord]
"""The two trials of one recorded round."""

FIELDS = ("server", "round", "wall_ns", "lost_ns", "units", "disturbed", "seconds")
"""Columns of a file of trials. Those of `benchmarks/versions_trials.csv`, each of one thread, were recorded
before `lost_ns` was: there it is wall time less CPU time."""


@dataclass(frozen=True)
class Recorded:
    """Rounds of two equal arms, by the server that they came from."""

    servers: tuple[tuple[Pair, ...], ...]

    @property
    def trials(self) -> list[TrialRecord]:
        """All of them."""
        return [trial for server in self.servers for pair in server for trial in pair]

    @property
    def lost(self) -> float:
        """Share of the time for which others had the cores."""
        return float(np.mean([trial.lost_ns / trial.region_ns for trial in self.trials]))

    def spread(self, figure: str) -> float:
        """Standard deviation of a pair's log ratio by a figure of the records."""
        ratios = [
            math.log(getattr(one, figure) / getattr(other, figure))
            for server in self.servers
            for one, other in server
        ]
        return float(np.std(ratios))

    @property
    def seconds(self) -> float:
        """Of one round, in the mean."""
        return 2 * float(np.mean([trial.ended - trial.started for trial in self.trials]))

    def draws(self, rng: np.random.Generator, each: int) -> Iterator[tuple[int, Pair]]:
        """Rounds without end, with the number of a server that lasts `each` of them.

        A recorded server that lasted longer stands for several: each part of it carries its draw.
        """
        parts = [one[at : at + each] for one in self.servers for at in range(0, len(one) - each + 1, each)]
        number = 0
        while True:
            flip = rng.random() < 0.5
            for one, other in parts[rng.integers(len(parts))]:
                yield number, (other, one) if flip else (one, other)
            number += 1


def read(file: Path) -> Recorded:
    """Read a file that `write` wrote."""
    servers: dict[str, dict[str, list[TrialRecord]]] = {}
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            rounds = servers.setdefault(row["server"], {})
            rounds.setdefault(row["round"], []).append(_record(row))
    return Recorded(tuple(tuple(_pair(pair) for pair in rounds.values()) for rounds in servers.values()))


def _pair(trials: list[TrialRecord]) -> Pair:
    one, other = trials
    return one, other


def _record(row: dict[str, str]) -> TrialRecord:
    return TrialRecord(
        arm="",
        kind=Kind.TIMING,
        pack="p000",
        round=0,
        attempt=0,
        outcome=Outcome.OK,
        units=float(row["units"]),
        region_ns=int(row["wall_ns"]),
        lost_ns=int(row["lost_ns"]),
        disturbed=(row["disturbed"],) if row["disturbed"] else (),
        ended=float(row["seconds"]),
    )


def write(file: Path, folders: Iterable[Path]) -> None:
    """Write the rounds of sweeps of two equal versions, whatever they were stopped by."""
    with file.open("w", newline="") as lines:
        rows = csv.writer(lines)
        rows.writerow(FIELDS)
        for place, folder in enumerate(folders):
            manifest = SweepFolder(folder).read_manifest()
            progress = read_progress(SweepFolder(folder), manifest)
            (pack,) = manifest.packs
            for number in range(len(pack.orders)):
                used = [trial.record for trial in progress.used(pack, number)]
                if len(used) == 2 and all(one.outcome is Outcome.OK for one in used):
                    rows.writerows(_row(place, one) for one in used)


def _row(folder: int, record: TrialRecord) -> list[object]:
    return [
        f"{folder}-{record.draw}",
        f"{folder}-{record.round}",
        record.region_ns,
        record.lost_ns,
        record.units,
        "; ".join(record.disturbed),
        round(record.ended - record.started, 3),
    ]


@dataclass
class Replay:
    """One comparison that goes on as long as it is asked to: trials that were drawn stay.

    Attributes
    ----------
    change : planted log ratio of the head's time to the base's
    """

    recorded: Recorded
    rng: np.random.Generator
    change: float = 0.0
    _trials: list[StoredTrial] = field(default_factory=list)
    _draws: Iterator[tuple[int, Pair]] | None = None

    def judged(self, measure: MeasureConfig) -> tuple[EffectResult, float]:
        """Measure until the shipped rule ends it, and judge; the effect, and seconds of trials."""
        manifest = _manifest(measure)
        (pack,) = manifest.packs
        progress = Progress(repeats=measure.repeats, rule=StopRule(manifest))
        for trial in self._trials:
            progress.add(trial)
        while missing := progress.unfinished_rounds(pack):
            for trial in self._round(missing[0], progress, measure.rounds_per_server):
                self._trials.append(trial)
                progress.add(trial)
        (result,) = Judge(manifest, progress, _used(manifest, progress)).effects()
        return result, progress.seconds(pack.id, len(pack.orders))

    def _round(self, number: int, progress: Progress, each: int) -> Iterator[StoredTrial]:
        self._draws = self._draws or self.recorded.draws(self.rng, each)
        server, pair = next(self._draws)
        attempt = len(progress.timing.get(("p000", number), {}))
        for arm, record, change in zip((BASE, HEAD), pair, (0.0, self.change), strict=True):
            times = {
                name: round(getattr(record, name) * math.exp(change)) for name in ("region_ns", "lost_ns")
            }
            place: dict[str, Any] = {"arm": arm.id, "round": number, "attempt": attempt, "server": server}
            folder = Path(f"{arm.id}/r{number}-a{attempt}")
            yield StoredTrial(folder, replace(record, **place, **times))


def _manifest(measure: MeasureConfig) -> Manifest:
    orders = balanced_orders((BASE.id, HEAD.id), measure.rounds_planned, "replay")
    sweep = Sweep(
        name="replay",
        workload="replay",
        config={},
        measure=measure,
        code="",
        references={"naive": BASE.id},
        declared=UNTOUCHED,
    )
    pack = Pack(id="p000", orders=orders, start="fork")
    return Manifest(sweep=sweep, arms=(BASE, HEAD), effects=(EFFECT,), packs=(pack,))


def _used(manifest: Manifest, progress: Progress) -> pl.DataFrame:
    """The table of timing trials that count, as collecting makes it."""
    labels = {arm.id: arm.label for arm in manifest.arms}
    (pack,) = manifest.packs
    trials = [
        Trial(one.record, one.folder, labels[one.record.arm], True)
        for number in range(len(pack.orders))
        for one in progress.used(pack, number)
    ]
    return parquet_table(TRIALS, trials)
