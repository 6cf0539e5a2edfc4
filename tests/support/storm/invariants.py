"""What must hold of the files of a sweep, whatever has happened to it: every wanted trial once, and no other.

An oracle: it reads JSON, npz and Parquet, and imports nothing of what wrote them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

GIVEN_UP_AFTER = 2
"""Failed timing trials of an arm in a pack after which nobody wants more of it."""

BAD = ("failed", "oom", "timeout")


@dataclass(frozen=True)
class Violation:
    """Something that must never be, and where: `kind` is one word for counting."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class Trial:
    """One record as it stands on disk, with the place that its folder's name gives it."""

    folder: Path
    values: Mapping[str, Any]

    @property
    def cell(self) -> tuple[str, int, str]:
        """(pack, round, arm) of a timing trial."""
        return self.values["pack"], self.values["round"], self.values["arm"]

    @property
    def attempt(self) -> int:
        """Number of the start of its pack that measured it."""
        return self.values["attempt"]

    @property
    def ok(self) -> bool:
        """Whether it measured what it was to."""
        return self.values["outcome"] == "ok"


@dataclass(frozen=True)
class Plan:
    """The arms of each pack in each round, as the manifest has them."""

    orders: Mapping[str, tuple[tuple[str, ...], ...]]
    name: str

    @classmethod
    def of(cls, folder: Path) -> Plan:
        """Read the manifest of a sweep."""
        lines = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
        packs = {one["id"]: tuple(map(tuple, one["orders"])) for one in lines if one["row"] == "pack"}
        (name,) = (one["name"] for one in lines if one["row"] == "sweep")
        return cls(packs, name)

    def cells(self) -> set[tuple[str, int, str]]:
        """Every (pack, round, arm) that is to be measured."""
        return {
            (pack, number, arm)
            for pack, orders in self.orders.items()
            for number, order in enumerate(orders)
            for arm in order
        }

    def arms(self) -> set[str]:
        """Every arm."""
        return {arm for orders in self.orders.values() for order in orders for arm in order}


@dataclass(frozen=True)
class Tally:
    """Trials that a sweep wanted, those that count, and those of arms that were given up after failing."""

    wanted: int
    found: int
    failed: int = 0

    def __str__(self) -> str:
        return f"{self.found} of {self.wanted}" + (f", and {self.failed} failed" if self.failed else "")


def trials(folder: Path) -> list[Trial]:
    """Every record that can be read; a damaged one is none."""
    found = []
    for file in sorted(folder.glob("trials/*/*/record.json")):
        try:
            values = json.loads(file.read_text())
        except ValueError:
            continue
        if isinstance(values, dict) and "outcome" in values:
            found.append(Trial(file.parent, values))
    return found


def violations(folder: Path) -> list[Violation]:
    """Everything that is wrong with a sweep that says it is finished."""
    plan, stored = Plan.of(folder), trials(folder)
    excused = given_up(stored)
    return [
        *misplaced(stored),
        *incomplete(plan, stored, excused),
        *unsupported_evidence(plan, stored, excused),
        *miscounted(folder, plan, stored, excused),
        *torn_series(folder, stored),
    ]


def tally(folder: Path) -> Tally:
    """Count what a sweep wanted and what counts of it, whether or not it is finished."""
    plan, stored = Plan.of(folder), trials(folder)
    excused = given_up(stored)
    wanted = {cell for cell in plan.cells() if (cell[0], cell[2]) not in excused}
    whole = finished(plan, stored, excused)
    found = {cell for cell in wanted if whole.get(cell[:2])}
    return Tally(len(wanted), len(found), sum(excused.values()))


def given_up(stored: list[Trial]) -> dict[tuple[str, str], int]:
    """(pack, arm) of arms that failed too often, or can never run here, with the number of such records."""
    bad: Counter[tuple[str, str]] = Counter()
    for one in stored:
        deadly = (one.values.get("failure") or {}).get("type") == "JobOutOfMemory"
        if one.values["outcome"] in BAD and (one.values["kind"] == "timing" or deadly):
            bad[one.values["pack"], one.values["arm"]] += GIVEN_UP_AFTER if deadly else 1
    return {key: count for key, count in bad.items() if count >= GIVEN_UP_AFTER}


def finished(
    plan: Plan, stored: list[Trial], excused: Mapping[tuple[str, str], int]
) -> dict[tuple[str, int], set[int]]:
    """Attempts of each (pack, round) that measured all of its arms."""
    measured: dict[tuple[str, int, int], set[str]] = defaultdict(set)
    for one in stored:
        if one.values["kind"] == "timing" and one.ok:
            pack, number, arm = one.cell
            measured[pack, number, one.attempt].add(arm)
    found: dict[tuple[str, int], set[int]] = defaultdict(set)
    for (pack, number, attempt), arms in measured.items():
        order = plan.orders.get(pack, ())
        if number < len(order) and {a for a in order[number] if (pack, a) not in excused} <= arms:
            found[pack, number].add(attempt)
    return found


def misplaced(stored: list[Trial]) -> Iterator[Violation]:
    """A record that says another place than its folder: somebody wrote into somebody else's."""
    for one in stored:
        values = one.values
        if values["kind"] == "timing":
            name = f"{values['pack']}-r{values['round']:03d}-a{values['attempt']}"
        else:
            name = one.folder.name
        if (one.folder.parent.name, one.folder.name) != (values["arm"], name):
            yield Violation("misplaced", f"{one.folder} holds a record of {values['arm']} {name}")


def incomplete(
    plan: Plan, stored: list[Trial], excused: Mapping[tuple[str, str], int]
) -> Iterator[Violation]:
    """A round that no single attempt has measured whole."""
    whole = finished(plan, stored, excused)
    for pack, orders in plan.orders.items():
        for number, order in enumerate(orders):
            if all((pack, arm) in excused for arm in order):
                continue
            if not whole.get((pack, number)):
                yield Violation("lost", f"round {number} of {pack} was never measured whole by one attempt")


def unsupported_evidence(
    plan: Plan, stored: list[Trial], excused: Mapping[tuple[str, str], int]
) -> Iterator[Violation]:
    """An arm without the counts and the evidence that it is judged by."""
    for kind in ("counting", "evidence"):
        have = {one.values["arm"] for one in stored if one.values["kind"] == kind and one.ok}
        for arm in sorted(plan.arms() - have - {arm for _, arm in excused}):
            yield Violation("lost", f"arm {arm} has no {kind} trial that ended well")


def miscounted(
    folder: Path, plan: Plan, stored: list[Trial], excused: Mapping[tuple[str, str], int]
) -> Iterator[Violation]:
    """What the sweep's own table counts: each cell once, a round of one attempt, figures as recorded."""
    file = folder / "tables" / "trials.parquet"
    if not file.exists():
        yield Violation("lost", f"{file} was never written")
        return
    table = pl.read_parquet(file).filter((pl.col("kind") == "timing") & pl.col("used"))
    rows = table.select("pack", "round", "arm", "attempt", "outcome", "ns_per_unit").rows(named=True)
    counted = Counter((row["pack"], row["round"], row["arm"]) for row in rows if row["outcome"] == "ok")
    wanted = {cell for cell in plan.cells() if (cell[0], cell[2]) not in excused}
    for cell in sorted(wanted - counted.keys()):
        yield Violation("lost", f"{_where(cell)} counts nowhere")
    for cell, times in counted.items():
        if times > 1:
            yield Violation("doubled", f"{_where(cell)} counts {times} times")
    yield from _mixed(rows)
    yield from _altered(rows, stored)


def _mixed(rows: list[dict[str, Any]]) -> Iterator[Violation]:
    attempts: dict[tuple[str, int], set[int]] = defaultdict(set)
    for row in rows:
        attempts[row["pack"], row["round"]].add(row["attempt"])
    for (pack, number), several in attempts.items():
        if len(several) > 1:
            yield Violation("mixed", f"round {number} of {pack} counts attempts {sorted(several)}")


def _altered(rows: list[dict[str, Any]], stored: list[Trial]) -> Iterator[Violation]:
    recorded = {(*one.cell, one.attempt): one for one in stored if one.values["kind"] == "timing"}
    for row in rows:
        cell = row["pack"], row["round"], row["arm"]
        one = recorded.get((*cell, row["attempt"]))
        if row["outcome"] != "ok":
            continue
        if one is None or not one.ok:
            yield Violation(
                "wrong", f"{_where(cell)} counts, and attempt {row['attempt']} has no record of it"
            )
        elif not np.isclose(
            row["ns_per_unit"],
            (one.values["region_ns"] - (one.values.get("lost_ns") or 0)) / one.values["units"],
            rtol=1e-9,
        ):
            yield Violation("wrong", f"{_where(cell)} counts {row['ns_per_unit']} ns a unit, not as recorded")


def torn_series(folder: Path, stored: list[Trial]) -> Iterator[Violation]:
    """A trial that counts, whose series cannot be read or is another trial's."""
    for one, series in counted_series(folder, stored):
        if series is None:
            yield Violation("lost", f"{one.folder / 'iterations.npz'} cannot be read, and its trial counts")
        elif len(series["wall_ns"]) != one.values["iterations"]:
            yield Violation(
                "wrong", f"{one.folder}: {len(series['wall_ns'])} iterations are not its record's"
            )
        elif series["wall_ns"].sum() > one.values["region_ns"] * 1.001:
            yield Violation("wrong", f"{one.folder}: its iterations take longer than its region")


def counted_series(folder: Path, stored: list[Trial]) -> Iterator[tuple[Trial, dict[str, np.ndarray] | None]]:
    """Trials that the sweep's own table counts, each with its series; None where that cannot be read."""
    file = folder / "tables" / "trials.parquet"
    if not file.exists():
        return
    table = pl.read_parquet(file).filter((pl.col("kind") == "timing") & pl.col("used"))
    used = set(table.select("pack", "round", "arm", "attempt").iter_rows())
    for one in stored:
        if one.values["kind"] == "timing" and one.ok and (*one.cell, one.attempt) in used:
            yield one, _series(one.folder / "iterations.npz")


def _series(file: Path) -> dict[str, np.ndarray] | None:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except Exception:  # noqa: BLE001 - a torn zip raises whatever it was torn in
        return None


def _where(cell: tuple[str, int, str]) -> str:
    return f"round {cell[1]} of arm {cell[2]} in {cell[0]}"
