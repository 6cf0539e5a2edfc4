"""Answers about versions, measured for real: the second table of docs/results/versions.md, as Markdown.

    export PYTHONPATH=tests/support
    python tests/benchmarks/table_versions_real.py FOLDER itself 20          # measure so many, one by one
    python tests/benchmarks/table_versions_real.py FOLDER slower 3
    python tests/benchmarks/table_versions_real.py FOLDER wheels 1 --environments .venv .venv-next
    python tests/benchmarks/table_versions_real.py FOLDER                    # the table of what is there

Each row runs `perfsweep judge` or `perfsweep bisect` with the options that its page names, on fresh
repositories with planted changes. What is finished in the folder is not measured again, and a folder may be
filled by several commands at once, each with rows of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from documented import ROOT
from environments import bare
from planted_versions import CHANGED, REPEATS, SCRIPT, SLOWER, culprit, is_right, line

Found = dict[str, Any]
"""The JSON object of a command, with `took`, its seconds, and what was planted."""


@dataclass(frozen=True)
class Row:
    """One figure: what is planted, what is asked, and how often that was answered well.

    Attributes
    ----------
    planted : what the culprit's module is given
    find : what a bisection looks for; empty where two versions are judged
    """

    title: str
    good: Callable[[Found], bool]
    planted: Mapping[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    find: str = ""


def _is(*verdicts: str) -> Callable[[Found], bool]:
    return lambda found: found["verdict"] in verdicts


def _is_found(found: Found) -> bool:
    return is_right([one["subject"] for one in found["suspects"]], found["culprit"])


PROGRAM = ("measure.margin=0.01", "measure.budget_s=120")
"""What docs/versions.md advises to a program that keeps what is faster."""

ROWS = {
    "itself": Row(
        "a commit against itself, margin 5 %: *no difference*",
        _is("no difference"),
        options=("measure.margin=0.05",),
    ),
    "edits": Row("edits without effect, 120 s, margin 1 %: kept", _is("faster"), options=PROGRAM),
    "faster": Row(
        "edits 5 % faster, 120 s, margin 1 %: kept",
        _is("faster"),
        {"repeats": round(REPEATS / SLOWER)},
        PROGRAM,
    ),
    "slower": Row(
        "one of 16 commits 5 % slower, 120 s a step: found",
        _is_found,
        {"repeats": round(REPEATS * SLOWER)},
        ("measure.budget_s=120",),
        "slower",
    ),
    "different": Row(
        "results of one of 16 commits changed by 1e-3: found", _is_found, {"scale": CHANGED}, find="different"
    ),
    "digits": Row(
        "digits in two equal environments, 30 s: not *slower*",
        _is("no difference", "undecided"),
        options=("measure.budget_s=30",),
    ),
    "wheels": Row(
        "two wheels of torch on digits, 120 s: both judged in one pack",
        lambda found: found["rounds"] >= 6,
        options=("measure.budget_s=120",),
    ),
}


def perfsweep(folder: Path, *words: str) -> Found:
    """Run a command in a folder; its JSON object, and how long it took."""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "perfsweep.pipelines.cli", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout:
        raise SystemExit(f"{words}: {done.stderr[-2000:]}")
    return {**json.loads(done.stdout), "took": time.monotonic() - started}


def measure(kind: str, number: int, folder: Path, environments: tuple[str, str] | None) -> Found:
    """Ask one question of a row in a folder of its own."""
    row, root = ROWS[kind], folder / f"{kind}{number}"
    if environments or kind == "digits":
        root.mkdir(exist_ok=True)
        both = environments or tuple(str(_environment(folder / name)) for name in ("one", "other"))
        return perfsweep(
            root, "judge", "--environment", *both, "--json", "--", "workload=digits", *row.options
        )
    planted = culprit(number) if row.find else 1
    if not root.exists():
        line(root, planted, **row.planted)
    asked = ("bisect", "good", "main", "--find", row.find) if row.find else ("judge", "good", "c1")
    return {**perfsweep(root, *asked, "--json", "--", *SCRIPT, *row.options), "culprit": planted}


def _environment(place: Path) -> Path:
    return place if place.exists() else bare(place, also=["scikit-learn"])


def finished(folder: Path, kind: str) -> list[Found]:
    """Answers that are there."""
    return [json.loads(file.read_text()) for file in sorted(folder.glob(f"{kind}-*.json"))]


def described(found: Found) -> str:
    """One answer in a line."""
    ratio = f"{found['ratio']:.4f} [{found['low']:.4f}, {found['high']:.4f}]" if found.get("ratio") else ""
    steps = f"{len(found['steps'])} steps" if "steps" in found else f"{found['rounds']} rounds"
    return f"{found['verdict']} {ratio} {found.get('clock', '')} {steps}, {found['took']:.0f} s"


def table(folder: Path) -> None:
    """Print the rows of what is there."""
    print("| | of | how they ended | seconds |\n|---|---|---|---|")
    for kind, row in ROWS.items():
        if every := finished(folder, kind):
            ends = Counter(one["verdict"] for one in every)
            said = ", ".join(f"{count} *{end}*" for end, count in ends.most_common())
            took = [one["took"] for one in every]
            good = sum(map(row.good, every))
            seconds = f"{np.median(took):.0f}, at most {max(took):.0f}"
            print(f"| {row.title} {good} | {len(every)} | {said} | {seconds} |")


def main() -> None:
    """Measure what is missing of a row, or print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="where repositories, sweeps and answers stay")
    parser.add_argument("row", nargs="?", choices=ROWS)
    parser.add_argument("count", nargs="?", type=int, default=1)
    parser.add_argument("--environments", nargs=2, help="interpreters with the two wheels")
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not given.row:
        table(folder)
        return
    for number in range(given.count):
        file = folder / f"{given.row}-{number:02}.json"
        if not file.exists():
            found = measure(given.row, number, folder, given.environments)
            file.write_text(json.dumps(found))
            print(f"{given.row} {number}: {described(found)}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
