"""Records of an arm in a pack -> its W&B run: names, configuration, history, summary. Touches no file.

History rows keep the order of the rounds, one segment each. Each kind of row counts its own x axis through
the whole run: `iter/index` for timed iterations, `warmup/index` for warm-up ones, `log/index` for metrics
that were logged more or less often than once per iteration.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from perfsweep.pipelines.publish.history_rows import (
    HistoryRow,
    Timing,
    iteration_rows,
    log_rows,
    plain,
    row_count,
    spikes,
    warmup_rows,
)
from perfsweep.pipelines.publish.published import PublishedRun
from perfsweep.pipelines.store.records import SCHEMA, Arm, Manifest, Outcome, Pack, Sweep, TrialRecord
from perfsweep.pipelines.store.trial_files import iteration_times
from perfsweep.pipelines.units import MB
from perfsweep.workloads.errors import RecordError

LONGEST_NAME = 128
LONGEST_TAG = 64

PROFILE_JOB = "profile"
"""Type of the runs that hold profiles; what is attached to them is no series."""

FORMAT = 2
"""Counts changes of what rows look like, so that runs of an older look are replaced and never continued."""


@dataclass(frozen=True)
class Standing:
    """What the comparison says of one arm, by which W&B orders, scatters and ranks runs.

    Attributes
    ----------
    bench : figures of the run's summary below `bench`, in place of what its own trials say
    summary : others, as far as there are: `speed` against the baseline with `speed_low` and `speed_high`, its
        95 % interval, and the `verdict`
    """

    bench: Mapping[str, float] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)


UNCOMPARED = Standing()
"""Of an arm before the first comparison."""

MEASURED = frozenset({Outcome.OK, Outcome.DISTURBED})
_NS_PER_MS = 1e6


@dataclass(frozen=True)
class Segment:
    """Rows that are sent as a whole: one round. They are made only when they are sent.

    Attributes
    ----------
    numbers : rows hold numbers alone, with their time; otherwise they hold media, which only W&B's client can
        write
    """

    digest: str
    count: int
    rows: Callable[[], Iterator[HistoryRow]]
    numbers: bool = True


@dataclass(frozen=True)
class RunContent:
    """Everything that a W&B run is made of.

    `run_id` is the name under which it is published first; a run that had to be replaced has a later
    `generation`. `files` go into an artifact, by the name that each has there; so do those `bundled`, as one
    archive, since each file costs a request.
    """

    run_id: str
    arm: str
    label: str
    pack: str
    name: str
    project: str
    entity: str | None
    group: str
    job_type: str
    tags: tuple[str, ...]
    config: dict[str, Any]
    segments: tuple[Segment, ...]
    summary: dict[str, Any]
    exit_code: int = 0
    files: tuple[tuple[str, Path], ...] = ()
    bundled: tuple[tuple[str, Path], ...] = ()

    @classmethod
    def of(
        cls, sweep: Sweep, run_id: str, name: str, tags: Iterable[str], config: dict[str, Any], **own: Any
    ) -> RunContent:
        """Make the content of a run: names as long as W&B takes, and what all runs of a sweep say."""
        shared = {"schema_version": SCHEMA, "workload": sweep.workload, "sweep_id": sweep.name}
        named = (sweep.workload.rpartition(":")[2], sweep.name, *tags)
        return cls(
            run_id=run_id,
            name=name[:LONGEST_NAME],
            project=sweep.tracking.project,
            entity=sweep.tracking.entity,
            group=sweep.name[:LONGEST_NAME],
            tags=tuple(dict.fromkeys(tag[:LONGEST_TAG] for tag in named)),
            config={**config, **shared, "code": sweep.code},
            **own,
        )

    @property
    def rows(self) -> int:
        """History rows of all segments."""
        return sum(segment.count for segment in self.segments)

    @property
    def digests(self) -> list[str]:
        """Digests of the segments, in order."""
        return [segment.digest for segment in self.segments]

    def digest(self) -> str:
        """SHA-256 over all of it: equal digests mean that publishing again would change nothing."""
        said = {
            name: value
            for name, value in vars(self).items()
            if name not in ("segments", "files", "bundled", "entity")
        }
        return hashlib.sha256(
            json.dumps([said, self.digests], sort_keys=True, default=str).encode()
        ).hexdigest()

    def published(self) -> dict[str, Any]:
        """What a complete run says of itself in its summary, so that anybody can see later whether it is."""
        return {
            "published/digest": self.digest(),
            "published/segments": json.dumps(self.digests),
            "published/rows": self.rows,
        }

    @property
    def artifact_type(self) -> str:
        """What the files are, in W&B's words; the artifact's name begins with it."""
        return self.job_type if self.job_type == PROFILE_JOB else "series"

    def delivered(
        self, where: str | None, rows: int, note: str, before: int | None = None, remark: str = ""
    ) -> PublishedRun:
        """What came of publishing it: so many rows are at a place, or none where there is none."""
        own = (self.arm, self.label, self.pack, self.run_id)
        return PublishedRun(*own, where, self.rows, rows, note, before, remark)

    def named(self, generation: int) -> str:
        """The run's id in a generation; W&B never takes the id of a deleted run again."""
        return self.run_id if generation == 1 else f"{self.run_id}-g{generation}"


def generation_of(run_id: str, name: str) -> int | None:
    """Which generation of a run has this name; None where it is another run."""
    if name == run_id:
        return 1
    number = name.removeprefix(f"{run_id}-g")
    return int(number) if name.startswith(f"{run_id}-g") and number.isdigit() else None


def run_content(
    manifest: Manifest,
    arm: Arm,
    pack: Pack,
    timings: Sequence[Timing],
    counting: TrialRecord | None = None,
    identity: str = "",
    standing: Standing = UNCOMPARED,
) -> RunContent:
    """The run of an arm in a pack.

    Parameters
    ----------
    timings : final timing trials of the arm in the pack, in the order of their rounds
    counting : the arm's counting trial, whose counters go into the summary
    identity : what tells this sweep from others of the same name in the same project
    standing : what the comparison says of the arm
    """
    name = manifest.arm_names[arm.id]
    return RunContent.of(
        manifest.sweep,
        "-".join(filter(None, (identity, arm.id, pack.id))),
        name,
        _tags(manifest.sweep, arm, timings),
        _config(manifest, arm, pack.id, timings),
        arm=arm.id,
        label=name,
        pack=pack.id,
        job_type="bench",
        segments=_segments(pack, timings),
        summary=summary(timings, counting, standing),
        exit_code=0 if any(timing.record.outcome in MEASURED for timing in timings) else 1,
    )


def check_arrays(arrays: Mapping[str, np.ndarray], where: str) -> None:
    """Refuse arrays that do not describe the same iterations.

    Raises
    ------
    RecordError
        Start or wall times are missing, or arrays of iterations differ in length.
    """
    if missing := {"start_ns", "wall_ns", "epoch_ns"} - set(arrays):
        raise RecordError(f"{where} lacks {', '.join(sorted(missing))}; measure the trial again")
    count = len(arrays["wall_ns"])
    for name, values in arrays.items():
        per_iteration = name in ("start_ns", "device_ns") or name.startswith(("host_", "device_"))
        if per_iteration and len(values) != count:
            raise RecordError(
                f"{where} has {len(values)} entries of {name} for {count} iterations; measure the trial again"
            )
    if len({len(values) for name, values in arrays.items() if name.startswith("log_")}) > 1:
        raise RecordError(f"{where} has logged metrics of different lengths; measure the trial again")


def _segments(pack: Pack, timings: Sequence[Timing]) -> tuple[Segment, ...]:
    """One segment for each measured round."""
    rounds = len(pack.orders)
    first: Counter[str] = Counter()
    segments = []
    for timing in timings:
        if timing.record.outcome in MEASURED and timing.iterations:
            rows, count = partial(_round_rows, timing, dict(first), rounds), row_count(timing, rounds)
            segments.append(Segment(_segment_digest(timing, count), count, rows))
            first.update(timing.counts)
    return tuple(segments)


def _round_rows(timing: Timing, first: Mapping[str, int], rounds: int) -> Iterator[HistoryRow]:
    yield from warmup_rows(timing, first.get("warmup", 0), rounds)
    yield from iteration_rows(timing, first.get("iter", 0), rounds)
    yield from log_rows(timing, first.get("log", 0), rounds)


def _segment_digest(timing: Timing, count: int) -> str:
    """Digest of everything that a round's rows are made of."""
    digest = hashlib.sha256(json.dumps([FORMAT, timing.record.round, timing.record.attempt, count]).encode())
    for name in sorted(timing.arrays):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(timing.arrays[name]).tobytes())
    return digest.hexdigest()[:16]


def summary(
    timings: Sequence[Timing], counting: TrialRecord | None, standing: Standing = UNCOMPARED
) -> dict[str, Any]:
    """Headline numbers over all measured rounds; `bench/median_ms` appears as `bench_median_ms` too.

    W&B sorts and filters reliably only on names of letters, digits and underscores.
    """
    measured = [timing for timing in timings if timing.record.outcome in MEASURED]
    bench = {f"bench/{name}": value for name, value in _bench(measured, standing).items()}
    counters = {} if counting is None else counting.counters
    return {
        **bench,
        **{name.replace("/", "_"): value for name, value in bench.items()},
        **standing.summary,
        **spikes(measured),
        **{f"counters/{plain(name)}": value for name, value in counters.items() if value is not None},
        "outcome": _outcome(timings),
    }


def _bench(measured: Sequence[Timing], standing: Standing) -> dict[str, float]:
    times = [iteration_times(timing.arrays) for timing in measured if timing.iterations]
    found: dict[str, float] = {"rounds": len(measured), "n_iters": sum(map(len, times))}
    if times:
        p10, median, p90 = np.percentile(np.concatenate(times) / _NS_PER_MS, [10, 50, 90])
        found |= {"median_ms": float(median), "p10_ms": float(p10), "p90_ms": float(p90)}
    if measured:
        found["warmup_s"] = float(np.median([timing.record.warmup_s for timing in measured]))
    if time_ns := sum(timing.record.time_ns for timing in measured):
        found["items_per_s"] = sum(timing.record.units for timing in measured) / time_ns * 1e9
    # Zero means that nothing measured it, as without an accelerator: a missing number is no small number.
    if measured and (peak_bytes := np.median([timing.record.peak_bytes for timing in measured])):
        found["peak_mem_mb"] = float(peak_bytes) / MB
    shares = [timing.record.mfu for timing in measured if timing.record.mfu is not None]
    found |= {"mfu": float(np.median(shares))} if shares else {}
    return {**found, **standing.bench}


def _outcome(timings: Sequence[Timing]) -> str:
    """`ok` when every round is; otherwise what ended most of the others."""
    others = Counter(timing.record.outcome for timing in timings if timing.record.outcome is not Outcome.OK)
    return others.most_common(1)[0][0].value if others else Outcome.OK.value


def _tags(sweep: Sweep, arm: Arm, timings: Sequence[Timing]) -> list[str]:
    tags = ["baseline"] if _is_baseline(sweep, arm) else []
    tags += sorted({timing.record.outcome.value for timing in timings} - {Outcome.OK.value})
    if any(timing.record.disturbed for timing in timings):
        tags.append(Outcome.DISTURBED.value)
    return tags


def _is_baseline(sweep: Sweep, arm: Arm) -> bool:
    """Whether the arm is the default reference."""
    return arm.id == next(iter(sweep.references.values()), None)


def _config(manifest: Manifest, arm: Arm, pack: str, timings: Sequence[Timing]) -> dict[str, Any]:
    """Plain values; nested mappings appear in W&B as dotted names, so that no name needs a dot of its own."""
    sweep = manifest.sweep
    environment = next((timing.record.environment for timing in timings if timing.record.environment), {})
    return {
        **_facts(environment),
        "workload_config": _scalars(sweep.config),
        "variant": manifest.arm_names[arm.id],
        "toggles": toggle_levels(manifest, arm),
        "baseline": _is_baseline(sweep, arm),
        "seed": sweep.measure.seed,
        "arm": arm.id,
        "pack": pack,
    }


def toggle_levels(manifest: Manifest, arm: Arm) -> dict[str, Any]:
    """Levels by toggle; one with a word among its levels (`all` next to 8) is text in all runs of a sweep.

    W&B keeps one type for a column of configuration, and drops or splits values of another.
    """
    worded = {
        name for other in manifest.arms for name, value in other.levels.items() if isinstance(value, str)
    }
    return {name: str(value) if name in worded else value for name, value in arm.levels.items()}


def _facts(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of the measuring process: those to filter by under short names, the rest in `environment`."""
    gpus = environment.get("gpus") or [{}]
    hw = {
        "gpu": gpus[0].get("name"),
        "count": len(environment.get("gpus") or ()),
        "driver": environment.get("driver"),
    }
    sw = {name: environment.get(name) for name in ("torch", "cuda")}
    rest = {name: value for name, value in environment.items() if name not in ("slurm", "driver", *sw)}
    return _scalars({"hw": hw, "sw": sw, "slurm": environment.get("slurm") or {}, "environment": rest})


def _scalars(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings with sequences and other values as JSON text."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found[plain(str(name))] = _scalars(value)
        elif value is None or isinstance(value, (str, int, float, bool)):
            found[plain(str(name))] = value
        else:
            found[plain(str(name))] = json.dumps(value, default=str)
    return found
