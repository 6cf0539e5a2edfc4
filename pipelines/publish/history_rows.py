"""Arrays of one timing trial -> history rows, thinned where they would exceed W&B's limits.

The full series always goes into an artifact; rows are what charts are drawn from. Values of a row that is
kept are exactly those recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from perfsweep.pipelines.store.records import TrialRecord

HISTORY_LIMIT = 20_000
"""Timed iterations of a run that become rows; W&B takes 100,000 points of a metric and draws far fewer."""

SPIKE = 2.0
"""Times the median iteration of a round, above which one is a spike: an evaluation, a collection, a save."""

WARMUP_LIMIT = 4_000
LOG_LIMIT = 10_000

HEAD = 100
"""First iterations of a thinned round that are all kept: that is where times still move."""

_NS_PER_MS = 1e6

HistoryRow = dict[str, float]


@dataclass(frozen=True)
class Timing:
    """One final timing trial: its record, and its arrays where it has any.

    Arrays: `start_ns`, `wall_ns`, `device_ns`, `host_<phase>`, `device_<phase>`: int64 [N]; `warmup_wall_ns`:
    int64 [W]; `epoch_ns`: int64 [1], the wall clock at `start_ns[0]`; `log_<key>`: float64, one entry for
    each logged row.
    """

    record: TrialRecord
    arrays: Mapping[str, np.ndarray]

    @property
    def iterations(self) -> int:
        """Number N of timed iterations."""
        return len(self.arrays.get("wall_ns", ()))

    @property
    def counts(self) -> dict[str, int]:
        """Entries of each kind before thinning."""
        logged = [len(values) for name, values in self.arrays.items() if name.startswith("log_")]
        apart = max((count for count in logged if count != self.iterations), default=0)
        return {"warmup": len(self.arrays.get("warmup_wall_ns", ())), "iter": self.iterations, "log": apart}


def kept(values: np.ndarray, quota: int) -> np.ndarray:
    """Indices of at most `quota` entries that show the shape of a series, in order.

    A series that fits is kept whole. Of a longer one the first entries stay, and of each of equally wide
    buckets its first, its smallest and its largest entry, so that no spike and no plateau disappears (min-max
    decimation).

    Parameters
    ----------
    values : [N]
    quota : at least 3
    """
    count = len(values)
    if count <= quota:
        return np.arange(count)
    head = min(HEAD, quota // 4)
    edges = np.linspace(head, count, (quota - head) // 3 + 1).astype(int)
    chosen = [np.arange(head)]
    for start, end in pairwise(edges.tolist()):
        bucket = values[start:end]
        chosen.append(start + np.array([0, int(bucket.argmin()), int(bucket.argmax())]))
    return np.unique(np.concatenate(chosen))


def quota(limit: int, rounds: int) -> int:
    """Rows for one of `rounds` rounds; fixed by the plan, so that later rounds never change earlier rows."""
    return max(30, limit // max(1, rounds))


def warmup_rows(timing: Timing, first: int, rounds: int) -> Iterator[HistoryRow]:
    """Warm-up iterations, apart from the timed ones: a single compilation would flatten their chart.

    Only durations are recorded; they are placed back to back before the region.
    """
    walls = timing.arrays.get("warmup_wall_ns", np.empty(0, np.int64))
    ends = int(timing.arrays["epoch_ns"][0]) - (walls.sum() - np.cumsum(walls))
    columns = {"warmup/ms": walls / _NS_PER_MS, "_timestamp": ends / 1e9}
    return _rows("warmup", timing, columns, kept(walls, quota(WARMUP_LIMIT, rounds)), first)


def iteration_rows(timing: Timing, first: int, rounds: int) -> Iterator[HistoryRow]:
    """Timed iterations; `iter/t_s` and `_timestamp` are of an iteration's end."""
    arrays = timing.arrays
    ends = arrays["start_ns"] - arrays["start_ns"][0] + arrays["wall_ns"]
    columns = {"iter/ms": arrays["wall_ns"] / _NS_PER_MS, "iter/t_s": ends / 1e9}
    for name, values in arrays.items():
        if metric := _time_metric(name):
            # A negative time means that a device event was not available.
            columns[metric] = np.where(values < 0, np.nan, values / _NS_PER_MS)
    taken = {*columns, "iter/index", "iter/round", "iter/in_round"}
    for name, values in _logged(timing).items():
        if len(values) == timing.iterations:
            columns[f"iter/log_{name}" if f"iter/{name}" in taken else f"iter/{name}"] = values
    # Without it W&B would show the time of publishing, long after the measurement.
    columns["_timestamp"] = (int(arrays["epoch_ns"][0]) + ends) / 1e9
    return _rows("iter", timing, columns, kept(arrays["wall_ns"], quota(HISTORY_LIMIT, rounds)), first)


def log_rows(timing: Timing, first: int, rounds: int) -> Iterator[HistoryRow]:
    """Metrics without a row per iteration: they have their own axis, as nothing says where they belong."""
    logged = {name: values for name, values in _logged(timing).items() if len(values) != timing.iterations}
    columns = {
        f"log/{name}": values for name, values in logged.items() if name not in ("index", "round", "in_round")
    }
    longest = next(iter(columns.values()), np.empty(0))
    return _rows("log", timing, columns, kept(longest, quota(LOG_LIMIT, rounds)), first)


def spikes(timings: Sequence[Timing]) -> dict[str, float]:
    """Sum up the iterations that a line sampled by W&B may not show, over all rounds.

    How many spikes there are, how long (ms, median), how many iterations apart (median), and their share of
    the time; and the largest iteration (ms) with its number in its round.
    """
    walls = [timing.arrays["wall_ns"] for timing in timings if timing.iterations]
    if not walls:
        return {}
    places = [np.flatnonzero(wall > SPIKE * np.median(wall)) for wall in walls]
    high = np.concatenate([wall[at] for wall, at in zip(walls, places, strict=True)])
    apart = np.concatenate([np.diff(at) for at in places])
    longest = max(walls, key=lambda wall: wall.max())
    found = {
        "spikes": float(len(high)),
        "spikes_share": float(high.sum() / sum(wall.sum() for wall in walls)),
    }
    found |= {"largest_ms": float(longest.max() / _NS_PER_MS), "largest_in_round": float(longest.argmax())}
    found |= {"spikes_ms": float(np.median(high) / _NS_PER_MS)} if len(high) else {}
    return found | ({"spikes_every": float(np.median(apart))} if len(apart) else {})


def row_count(timing: Timing, rounds: int) -> int:
    """Rows that the three kinds have together."""
    limits = {"warmup": WARMUP_LIMIT, "iter": HISTORY_LIMIT}
    arrays = {
        "warmup": timing.arrays.get("warmup_wall_ns", np.empty(0)),
        "iter": timing.arrays.get("wall_ns", np.empty(0)),
    }
    count = sum(len(kept(arrays[kind], quota(limit, rounds))) for kind, limit in limits.items())
    return count + sum(1 for _ in log_rows(timing, 0, rounds))


def _time_metric(array: str) -> str | None:
    if array == "device_ns":
        return "iter/device_ms"
    for prefix, metric in (("host_", "iter/ms_"), ("device_", "iter/device_ms_")):
        if array.startswith(prefix):
            return metric + plain(array.removeprefix(prefix))
    return None


def _logged(timing: Timing) -> dict[str, np.ndarray]:
    prefix = "log_"
    return {
        plain(name.removeprefix(prefix)): values
        for name, values in timing.arrays.items()
        if name.startswith(prefix)
    }


def _rows(
    kind: str, timing: Timing, columns: Mapping[str, np.ndarray], chosen: np.ndarray, first: int
) -> Iterator[HistoryRow]:
    """Chosen rows of equally long columns, numbered as in the full series; NaN marks a missing value."""
    number = timing.record.round or 0
    picked = [column[chosen].tolist() for column in columns.values()]
    for inside, *values in zip(chosen.tolist(), *picked, strict=True):
        place = {f"{kind}/index": first + inside, f"{kind}/round": number, f"{kind}/in_round": inside}
        yield place | {name: value for name, value in zip(columns, values, strict=True) if value == value}


def plain(name: str) -> str:
    """A name of letters, digits, underscores and slashes, as W&B's charts and filters need it."""
    return re.sub(r"[^A-Za-z0-9_/]", "_", name)
