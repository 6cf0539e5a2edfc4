"""Records of one arm in one pack -> what its W&B run says: names, configuration, history, summary. Touches no file.

History rows keep the order of the rounds. Each kind of row counts its own x axis through the whole run:
`iter/index` for timed iterations, `warmup/index` for warm-up ones, `log/index` for metrics that were logged more or
less often than once per iteration.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.records import SCHEMA, Arm, Manifest, Outcome, Sweep, TrialRecord
from workloads.errors import RecordError

LONGEST_NAME = 128
LONGEST_TAG = 64

_MEASURED = frozenset({Outcome.OK, Outcome.DISTURBED})
_NS_PER_MS = 1e6
_BYTES_PER_MB = 1e6

HistoryRow = dict[str, float]


@dataclass(frozen=True)
class Timing:
    """One final timing trial: its record, and its arrays where it has any.

    Arrays: `start_ns`, `wall_ns`, `device_ns`, `host_<phase>`, `device_<phase>`: int64 [N]; `warmup_wall_ns`: int64
    [W]; `epoch_ns`: int64 [1], the wall clock at `start_ns[0]`; `log_<key>`: float64, one entry for each logged row.
    """

    record: TrialRecord
    arrays: Mapping[str, np.ndarray]

    @property
    def iterations(self) -> int:
        """Number N of timed iterations."""
        return len(self.arrays.get("wall_ns", ()))


@dataclass(frozen=True)
class RunContent:
    """Everything that a W&B run is made of, as plain values."""

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
    rows: tuple[HistoryRow, ...]
    summary: dict[str, Any]
    exit_code: int

    def digest(self) -> str:
        """SHA-256 over all of it: equal digests mean that publishing again would change nothing."""
        return hashlib.sha256(json.dumps(vars(self), sort_keys=True, default=str).encode()).hexdigest()


def run_content(
    manifest: Manifest, arm: Arm, pack: str, timings: Sequence[Timing], counting: TrialRecord | None = None
) -> RunContent:
    """The run of an arm in a pack.

    Parameters
    ----------
    timings : final timing trials of the arm in the pack, in the order of their rounds
    counting : the arm's counting trial, whose counters go into the summary
    """
    sweep = manifest.sweep
    short = sweep.workload.rpartition(":")[2]
    return RunContent(
        run_id=f"{arm.id}-{pack}",
        arm=arm.id,
        label=arm.label,
        pack=pack,
        name=f"{short}-{arm.label}-{sweep.measure.seed}"[:LONGEST_NAME],
        project=sweep.tracking.get("project") or "perfsweep",
        entity=sweep.tracking.get("entity"),
        group=sweep.name[:LONGEST_NAME],
        job_type="bench",
        tags=_tags(sweep, arm, short, timings),
        config=_config(manifest, arm, pack, timings),
        rows=tuple(history(timings)),
        summary=summary(timings, counting),
        exit_code=0 if any(timing.record.outcome in _MEASURED for timing in timings) else 1,
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
            raise RecordError(f"{where} has {len(values)} entries of {name} for {count} iterations; measure the trial again")
    if len({len(values) for name, values in arrays.items() if name.startswith("log_")}) > 1:
        raise RecordError(f"{where} has logged metrics of different lengths; measure the trial again")


def history(timings: Sequence[Timing]) -> Iterator[HistoryRow]:
    """All rows of the measured rounds, each kind with its running index."""
    indexes: Counter[str] = Counter()
    for timing in timings:
        if timing.record.outcome not in _MEASURED or not timing.iterations:
            continue
        place = {"round": timing.record.round or 0}
        for kind, rows in (("warmup", _warmup_rows(timing)), ("iter", _iteration_rows(timing)), ("log", _log_rows(timing))):
            for number, row in enumerate(rows):
                own = {"index": indexes[kind], **place, "in_round": number}
                indexes[kind] += 1
                yield {**{f"{kind}/{name}": value for name, value in own.items()}, **row}


def summary(timings: Sequence[Timing], counting: TrialRecord | None) -> dict[str, Any]:
    """Headline numbers over all measured rounds; `bench/median_ms` appears as `bench_median_ms` too.

    W&B sorts and filters reliably only on names of letters, digits and underscores.
    """
    measured = [timing for timing in timings if timing.record.outcome in _MEASURED]
    bench = {f"bench/{name}": value for name, value in _bench(measured).items()}
    counters = {} if counting is None else counting.counters
    return {
        **bench,
        **{name.replace("/", "_"): value for name, value in bench.items()},
        **{f"counters/{_plain(name)}": value for name, value in counters.items() if value is not None},
        "outcome": _outcome(timings),
    }


def _bench(measured: Sequence[Timing]) -> dict[str, float]:
    walls = [timing.arrays["wall_ns"] for timing in measured if timing.iterations]
    found: dict[str, float] = {"rounds": len(measured), "n_iters": sum(map(len, walls))}
    if walls:
        p10, median, p90 = np.percentile(np.concatenate(walls) / _NS_PER_MS, [10, 50, 90])
        found |= {"median_ms": float(median), "p10_ms": float(p10), "p90_ms": float(p90)}
    if measured:
        found["warmup_s"] = float(np.median([timing.record.warmup_s for timing in measured]))
    if region_ns := sum(timing.record.region_ns for timing in measured):
        found["items_per_s"] = sum(timing.record.units for timing in measured) / region_ns * 1e9
    # Zero means that nothing measured it, as on machines without an accelerator: a missing number is no small number.
    if peak_bytes := max((timing.record.peak_bytes for timing in measured), default=0):
        found["peak_mem_mb"] = peak_bytes / _BYTES_PER_MB
    return found


def _outcome(timings: Sequence[Timing]) -> str:
    """`ok` when every round is; otherwise what ended most of the others."""
    others = Counter(timing.record.outcome for timing in timings if timing.record.outcome is not Outcome.OK)
    return others.most_common(1)[0][0].value if others else Outcome.OK.value


def _warmup_rows(timing: Timing) -> Iterator[HistoryRow]:
    """Warm-up iterations, apart from the timed ones: a single compilation would flatten their chart.

    Only durations are recorded; they are placed back to back before the region.
    """
    walls = timing.arrays.get("warmup_wall_ns", np.empty(0, np.int64))
    ends = int(timing.arrays["epoch_ns"][0]) - (walls.sum() - np.cumsum(walls))
    for wall, end in zip(walls.tolist(), ends.tolist(), strict=True):
        yield {"warmup/ms": wall / _NS_PER_MS, "_timestamp": end / 1e9}


def _iteration_rows(timing: Timing) -> Iterator[HistoryRow]:
    """Timed iterations; `iter/t_s` and `_timestamp` are of an iteration's end."""
    arrays = timing.arrays
    ends = arrays["start_ns"] - arrays["start_ns"][0] + arrays["wall_ns"]
    columns = {"iter/ms": arrays["wall_ns"] / _NS_PER_MS, "iter/t_s": ends / 1e9}
    for name, values in arrays.items():
        if metric := _time_metric(name):
            # A negative time stands for a device event that could not be had.
            columns[metric] = np.where(values < 0, np.nan, values / _NS_PER_MS)
    taken = {*columns, "iter/index", "iter/round", "iter/in_round"}
    for name, values in _logged(timing).items():
        if len(values) == timing.iterations:
            columns[f"iter/log_{name}" if f"iter/{name}" in taken else f"iter/{name}"] = values
    # Without it W&B would show the time of publishing, long after the measurement.
    columns["_timestamp"] = (int(arrays["epoch_ns"][0]) + ends) / 1e9
    return _rows(columns)


def _time_metric(array: str) -> str | None:
    if array == "device_ns":
        return "iter/device_ms"
    for prefix, metric in (("host_", "iter/ms_"), ("device_", "iter/device_ms_")):
        if array.startswith(prefix):
            return metric + _plain(array.removeprefix(prefix))
    return None


def _log_rows(timing: Timing) -> Iterator[HistoryRow]:
    """Metrics whose rows are not one per iteration: they have an axis of their own, since nothing says where they belong."""
    logged = {name: values for name, values in _logged(timing).items() if len(values) != timing.iterations}
    return _rows({f"log/{name}": values for name, values in logged.items() if name not in ("index", "round", "in_round")})


def _logged(timing: Timing) -> dict[str, np.ndarray]:
    prefix = "log_"
    return {_plain(name.removeprefix(prefix)): values for name, values in timing.arrays.items() if name.startswith(prefix)}


def _rows(columns: Mapping[str, np.ndarray]) -> Iterator[HistoryRow]:
    """Rows of equally long columns; NaN marks a value that is missing."""
    for values in zip(*(column.tolist() for column in columns.values()), strict=True):
        yield {name: value for name, value in zip(columns, values, strict=True) if value == value}


def _plain(name: str) -> str:
    """A name of letters, digits, underscores and slashes, as W&B's charts and filters need it."""
    return re.sub(r"[^A-Za-z0-9_/]", "_", name)


def _tags(sweep: Sweep, arm: Arm, workload: str, timings: Sequence[Timing]) -> tuple[str, ...]:
    tags = [workload, sweep.name, *(["baseline"] if _is_baseline(sweep, arm) else [])]
    tags += sorted({timing.record.outcome.value for timing in timings} - {Outcome.OK.value})
    if any(timing.record.disturbed for timing in timings):
        tags.append(Outcome.DISTURBED.value)
    return tuple(dict.fromkeys(tag[:LONGEST_TAG] for tag in tags))


def _is_baseline(sweep: Sweep, arm: Arm) -> bool:
    """Whether the arm is the default reference."""
    return arm.id == next(iter(sweep.references.values()), None)


def _config(manifest: Manifest, arm: Arm, pack: str, timings: Sequence[Timing]) -> dict[str, Any]:
    """Plain values; nested mappings appear in W&B as dotted names, so that no name needs a dot of its own."""
    sweep = manifest.sweep
    environment = next((timing.record.environment for timing in timings if timing.record.environment), {})
    return {
        **_facts(environment),
        "schema_version": SCHEMA,
        "workload": sweep.workload,
        "workload_config": _scalars(sweep.config),
        "variant": arm.label,
        "toggles": _levels(manifest, arm),
        "baseline": _is_baseline(sweep, arm),
        "seed": sweep.measure.seed,
        "arm": arm.id,
        "pack": pack,
        "sweep_id": sweep.name,
        "code": sweep.code,
    }


def _levels(manifest: Manifest, arm: Arm) -> dict[str, Any]:
    """Levels by toggle; a toggle with a word among its levels (`all` beside 8) is text in every run of the sweep.

    W&B keeps one type for a column of configuration, and drops or splits values of another.
    """
    worded = {name for other in manifest.arms for name, value in other.levels.items() if isinstance(value, str)}
    return {name: str(value) if name in worded else value for name, value in arm.levels.items()}


def _facts(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of the measuring process: those that people filter by under short names, the rest under `environment`."""
    gpus = environment.get("gpus") or [{}]
    hw = {"gpu": gpus[0].get("name"), "count": len(environment.get("gpus") or ()), "driver": environment.get("driver")}
    sw = {name: environment.get(name) for name in ("torch", "cuda")}
    rest = {name: value for name, value in environment.items() if name not in ("slurm", "driver", *sw)}
    return _scalars({"hw": hw, "sw": sw, "slurm": environment.get("slurm") or {}, "environment": rest})


def _scalars(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings with sequences and other values as JSON text."""
    plain: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            plain[_plain(str(name))] = _scalars(value)
        elif value is None or isinstance(value, (str, int, float, bool)):
            plain[_plain(str(name))] = value
        else:
            plain[_plain(str(name))] = json.dumps(value, default=str)
    return plain
