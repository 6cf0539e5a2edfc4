"""What must hold once a sweep is finished, whatever has happened to it.

An oracle: it reads files, processes and W&B's rows with the standard library, numpy, polars and psutil, and
imports nothing of what wrote them. Every trial that is wanted counts once, with its own figures, here and in
W&B; nothing temporary, no secret and no process is left; and what was printed is for people.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil

from storm.processes import alive

GIVEN_UP_AFTER = 2
"""Failed timing trials of an arm in a pack after which no more of it are wanted."""

Cell = tuple[str, int, str]
"""(pack, round, arm) of a timing trial."""
Runs = Sequence[tuple[str, Sequence[str]]]
"""Runs in W&B: the configuration of each as JSON, and its history as lines."""


@dataclass(frozen=True)
class Violation:
    """Something that must never be, and where: `kind` is one word for counting."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class Trial:
    """One record on disk."""

    folder: Path
    values: Mapping[str, Any]

    @property
    def cell(self) -> Cell:
        """Its place in the plan."""
        return self.values["pack"], self.values["round"], self.values["arm"]

    @property
    def ok(self) -> bool:
        """Whether it measured what it was to."""
        return self.values["outcome"] == "ok"

    @cached_property
    def series(self) -> dict[str, np.ndarray] | None:
        """Its iterations; None where they cannot be read."""
        try:
            with np.load(self.folder / "iterations.npz", allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except Exception:  # noqa: BLE001 - a torn zip raises whatever it was torn in
            return None


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


class Sweep:
    """A sweep as its files have it: what the manifest wants, what was recorded, what its own table counts."""

    def __init__(self, folder: Path) -> None:
        lines = [json.loads(line) for line in (folder / "manifest.jsonl").read_text().splitlines()]
        self.orders = {one["id"]: one["orders"] for one in lines if one["row"] == "pack"}
        self.folder, self.trials = folder, trials(folder)
        self.timing = [one for one in self.trials if one.values["kind"] == "timing"]

    @cached_property
    def given_up(self) -> dict[tuple[str, str], int]:
        """(pack, arm) of arms that failed too often, or can never run here: the number of such records."""
        bad: Counter[tuple[str, str]] = Counter()
        for one in self.trials:
            deadly = (one.values.get("failure") or {}).get("type") == "JobOutOfMemory"
            if one.values["outcome"] in ("failed", "oom", "timeout") and (
                one.values["kind"] == "timing" or deadly
            ):
                bad[one.values["pack"], one.values["arm"]] += GIVEN_UP_AFTER if deadly else 1
        return {key: count for key, count in bad.items() if count >= GIVEN_UP_AFTER}

    @cached_property
    def wanted(self) -> list[Cell]:
        """Every cell that is to be measured."""
        return [
            (pack, number, arm)
            for pack, orders in self.orders.items()
            for number, order in enumerate(orders)
            for arm in order
            if (pack, arm) not in self.given_up
        ]

    @cached_property
    def whole(self) -> set[tuple[str, int]]:
        """(pack, round) of which one attempt has measured every arm that is wanted."""
        wanted, measured = defaultdict(set), defaultdict(set)
        for pack, number, arm in self.wanted:
            wanted[pack, number].add(arm)
        for one in self.timing:
            if one.ok:
                measured[one.cell[:2], one.values["attempt"]].add(one.cell[2])
        return {round for (round, _), arms in measured.items() if wanted[round] <= arms}

    @cached_property
    def counted(self) -> list[dict[str, Any]] | None:
        """The timing trials that its own table uses; None where that was never written."""
        file = self.folder / "tables" / "trials.parquet"
        if not file.exists():
            return None
        table = pl.read_parquet(file).filter((pl.col("kind") == "timing") & pl.col("used"))
        return table.select("pack", "round", "arm", "attempt", "outcome", "ns_per_unit").rows(named=True)

    @cached_property
    def used(self) -> list[Trial]:
        """Records of those."""
        keys = {(*_cell(row), row["attempt"]) for row in self.counted or ()}
        return [one for one in self.timing if one.ok and (*one.cell, one.values["attempt"]) in keys]

    def violations(self) -> Iterator[Violation]:
        """Everything that is wrong, where it says that it is finished."""
        for one in self.trials:
            pack, number, arm = one.cell
            timed = one.values["kind"] == "timing"
            name = f"{pack}-r{number:03d}-a{one.values['attempt']}" if timed else one.folder.name
            if (one.folder.parent.name, one.folder.name) != (arm, name):
                yield Violation("misplaced", f"{one.folder} holds a record of {arm} {name}")
        for pack, number in sorted({cell[:2] for cell in self.wanted} - self.whole):
            yield Violation("lost", f"round {number} of {pack} was never measured whole by one attempt")
        arms = {arm for orders in self.orders.values() for order in orders for arm in order}
        for kind in ("counting", "evidence"):
            have = {one.values["arm"] for one in self.trials if one.values["kind"] == kind and one.ok}
            for arm in sorted(arms - have - {arm for _, arm in self.given_up}):
                yield Violation("lost", f"arm {arm} has no {kind} trial that ended well")
        yield from self._miscounted()
        yield from self._torn()

    def _miscounted(self) -> Iterator[Violation]:
        """In its table: each cell once, a round of one attempt, figures as recorded."""
        if self.counted is None:
            yield Violation("lost", f"the table of trials of {self.folder} was never written")
            return
        rows = [row for row in self.counted if row["outcome"] == "ok"]
        times = Counter(map(_cell, rows))
        for cell in sorted(set(self.wanted) - times.keys()):
            yield Violation("lost", f"{cell} counts nowhere")
        for cell, count in times.items():
            if count > 1:
                yield Violation("doubled", f"{cell} counts {count} times")
        attempts = defaultdict(set)
        for row in self.counted:
            attempts[row["pack"], row["round"]].add(row["attempt"])
        for (pack, number), several in attempts.items():
            if len(several) > 1:
                yield Violation("mixed", f"round {number} of {pack} counts attempts {sorted(several)}")
        recorded = {(*one.cell, one.values["attempt"]): one.values for one in self.timing if one.ok}
        for row in rows:
            values = recorded.get((*_cell(row), row["attempt"]))
            lost_ns = (values or {}).get("lost_ns") or 0
            if not values:
                yield Violation("wrong", f"{_cell(row)} counts, and attempt {row['attempt']} has no record")
            elif not np.isclose(
                row["ns_per_unit"], (values["region_ns"] - lost_ns) / values["units"], rtol=1e-9
            ):
                yield Violation("wrong", f"{_cell(row)} counts {row['ns_per_unit']} ns, not as recorded")

    def _torn(self) -> Iterator[Violation]:
        """A trial that counts, whose series cannot be read or is another trial's."""
        for one in self.used:
            if one.series is None:
                yield Violation("lost", f"the series of {one.folder} cannot be read, and its trial counts")
            elif len(walls := one.series["wall_ns"]) != one.values["iterations"]:
                yield Violation("wrong", f"{one.folder}: {len(walls)} iterations are not its record's")
            elif walls.sum() > one.values["region_ns"] * 1.001:
                yield Violation("wrong", f"{one.folder}: its iterations take longer than its region")

    def published(self, runs: Runs) -> Iterator[Violation]:
        """Rows that W&B lacks, has twice, has without their counting here, or has with other values."""
        wanted = {
            (f"{one.values['pack']}/{one.values['arm']}", kind, one.values["round"], place): wall_ns / 1e6
            for one in self.used
            for kind, name in (("iter", "wall_ns"), ("warmup", "warmup_wall_ns"))
            for place, wall_ns in enumerate((one.series or {}).get(name, ()))
        }
        found = [*_rows(runs)]
        times = Counter(key for key, _ in found)
        for kind, what, keys in (
            ("lost", "are lacking", wanted.keys() - times.keys()),
            ("doubled", "are there more than once", {key for key, count in times.items() if count > 1}),
            ("wrong", "are of nothing that counts", times.keys() - wanted.keys()),
            ("wrong", "are not as recorded", {k for k, v in found if not np.isclose(v, wanted.get(k, v))}),
        ):
            if keys:
                yield Violation(kind, f"{len(keys)} rows in W&B {what}, such as {min(keys)}")


def _cell(row: Mapping[str, Any]) -> Cell:
    return row["pack"], row["round"], row["arm"]


def _rows(runs: Runs) -> Iterator[tuple[tuple[str, str, int, int], float]]:
    """(pack/arm, kind of row, round, place in the round) of every row in W&B, and its milliseconds."""
    for config, history in runs:
        values = json.loads(config)  # W&B wraps each value
        run = "/".join(str(values[name]["value"]) for name in ("pack", "arm"))
        for row in map(json.loads, history):
            for kind in ("iter", "warmup"):
                if f"{kind}/ms" in row:
                    place = int(row[f"{kind}/round"]), int(row[f"{kind}/in_round"])
                    yield (run, kind, *place), float(row[f"{kind}/ms"])


def violations(folder: Path, runs: Runs | None = None) -> list[Violation]:
    """Everything that is wrong with a finished sweep, and with its runs in W&B where they are given."""
    sweep = Sweep(folder)
    return [*sweep.violations(), *(() if runs is None else sweep.published(runs))]


def tally(folder: Path) -> Tally:
    """Count what a sweep wanted and what counts of it, whether or not it is finished."""
    sweep = Sweep(folder)
    found = sum(cell[:2] in sweep.whole for cell in sweep.wanted)
    return Tally(len(sweep.wanted), found, sum(sweep.given_up.values()))


TEMPORARY = re.compile(
    r"\.tmp$|\.save_tmp$|^\.publishing-|^\.[0-9a-f]{12}\.\d+$|^\.sources-.*\.\d+$|^scratch$"
)
"""Names under which files and folders are written before they get their own, and those of a trial alone."""

KEPT = re.compile(r"^(torchinductor_|perfsweep-code-)")
"""Caches in the folder for temporary files, which outlive processes: of torch, and of the code of jobs."""

WANDB_SOCKET = re.compile(r"^wandb-\d+-\d+-\d+$")
"""The folder in which W&B's client talks with its service, which removes it where it ends by itself."""


def leftovers(folder: Path) -> Iterator[Violation]:
    """Files and folders that were being written."""
    for path in sorted(path for path in folder.rglob("*") if TEMPORARY.search(path.name)):
        yield Violation("temporary", f"{path} was left")


def unempty(folder: Path, on_slurm: bool = False) -> Iterator[Violation]:
    """Anything in a folder for temporary files that is no cache.

    Slurm kills a step with all that runs in it: nothing is left that could remove the socket of W&B's client.
    """
    for path in sorted(path for path in folder.iterdir() if not KEPT.match(path.name)):
        socket = WANDB_SOCKET.match(path.name) and {one.name for one in path.iterdir()} <= {"socket"}
        if not (on_slurm and socket):
            yield Violation("temporary", f"{path} was left")


def secrets(planted: Sequence[str], folder: Path, allowed: Sequence[Path] = ()) -> Iterator[Violation]:
    """A secret in any file; `allowed` are the files that it belongs in."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and path not in allowed):
        content = file.read_bytes()
        for number, text in enumerate(planted):
            if text.encode() in content:
                yield Violation("secret", f"{file} holds planted secret {number}")


def processes(mark: str, folder: Path) -> dict[int, str]:
    """Running processes that carry a mark in their environment, or a folder in their command line, by id.

    Each with its state and its parent: one that is stopped cannot see that its parent has gone.
    """
    found = {}
    for one, words, variables in alive():
        line = " ".join(words)
        if mark in variables or f"{folder}/" in line:
            with suppress(psutil.Error):
                found[one.pid] = f"{line} ({one.status()}, child of {one.ppid()})"
    return found


TRACEBACK = "Traceback (most recent call last)"
NOT_OURS = (TRACEBACK, "Exception ignored in", "Error executing job", "Fatal Python")
"""Words of an interpreter, not of a command."""

LOOSE = re.compile(r"^(\w+\.)*\w*(Error|Exception|Warning|Interrupt): .*", re.MULTILINE)
"""An exception's own line where a sentence was due."""

DISK = re.compile(r"^(PermissionError|OSError): \[Errno (13|28|122)\]", re.MULTILINE)
"""What ends a trial's process where a fault has closed or filled its disk; the pack says it in a sentence."""

CHAINED = re.compile(r"\n(During handling|The above exception)[^\n]*\n\n" + re.escape(TRACEBACK))
"""Between exceptions of which one brought about the other."""


def words(text: str, where: str) -> Iterator[Violation]:
    """Output in which an interpreter speaks instead of a command."""
    started = not text.startswith((TRACEBACK, "Fatal Python")) or text.count(TRACEBACK) != 1
    if not started and _last(text) == "KeyboardInterrupt" and '/perfsweep/__main__.py"' not in text:
        return  # it was interrupted while it started: no line of a command had run yet
    if sign := next((sign for sign in NOT_OURS if sign in text), None):
        line = text[: text.index(sign)].count("\n") + 1
        yield Violation("words", f"{where} line {line}: {sign}: {_last(text)}")
    elif match := LOOSE.search(text):
        yield Violation("words", f"{where} speaks as an exception: {match[0]}")


def trial_words(text: str, users: str, where: str) -> Iterator[Violation]:
    """A trial's log in which something of ours raised; that of a user's module belongs there.

    On a full disk the log ends where the disk did.
    """
    for part in CHAINED.sub("", text).split(TRACEBACK)[1:]:
        if f"{users}/" not in part and not DISK.search(part):
            yield Violation("words", f"{where}: {_last(part)}")


def complaint(status: int, errors: str, where: str) -> Iterator[Violation]:
    """A command that ended with a mistake or by a fault of the machine: one line, which is a sentence."""
    lines = [line for line in errors.splitlines() if line.strip()]
    if status == 2 and len(lines) != 1:
        yield Violation("words", f"{where} ended with status 2 and {len(lines)} lines: {lines[:3]}")
    if status < 0 or status > 130:
        yield Violation("words", f"{where} ended with status {status}")


def _last(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")[:200]
