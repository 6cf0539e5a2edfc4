"""Plants small mistakes, one at a time, in a copy of the code; lists those that the nearest quick tests miss.

    make mutants SEED=1 COUNT=300

Equal seeds draw equal mutants from equal sources. What was judged stays in the file of records: the same
command goes on where it stopped. Those that change nothing which anybody could see stand in equivalent.yaml,
each with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import yaml

from mutants.nearest import Nearest, sources
from mutants.positions import Mutant, sample

ROOT = Path(__file__).resolve().parents[3]
EQUIVALENT = Path(__file__).with_name("equivalent.yaml")
COPIED = ("perfsweep", "pipelines", "workloads", "slurm", "conf", "tests", "docs")
QUICK = "not slow and not workloads"
KILLED, SURVIVED, SLOW, UNTESTED, BROKEN = (
    "killed",
    "survived",
    "killed by time",
    "no test",
    "tests fail without it",
)


@dataclass(frozen=True)
class Tried:
    """What became of a mutant.

    Args:
        outcome: One of the words above.
        by: Test that noticed it, or the files that did not.
        seconds: How long it took.
    """

    outcome: str
    by: str
    seconds: float


def main() -> int:
    """Judges a sample and prints the table; status 1 if anything survived that is not known as equivalent."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="sources whose path begins with this")
    parser.add_argument("--whole", action="store_true", help="all quick tests instead of the nearest files")
    parser.add_argument("--records", type=Path, help="default: build/mutants/SEED.jsonl")
    options = parser.parse_args()
    chosen = [path for path in sources(ROOT) if str(path.relative_to(ROOT)).startswith(options.only)]
    if not chosen:
        parser.error(f"--only {options.only}: no source begins so")
    mutants = sample(ROOT, chosen, options.count, options.seed)
    records = options.records or ROOT / f"build/mutants/{options.seed}{'-whole' * options.whole}.jsonl"
    records.parent.mkdir(parents=True, exist_ok=True)
    outcomes = judge(mutants, records, options.workers, options.whole)
    return report(mutants, outcomes)


def judge(mutants: list[Mutant], records: Path, workers: int, whole: bool) -> dict[str, Tried]:
    """Tries every mutant that the file of records does not know yet, and adds it there."""
    known = read(records)
    with copies(workers) as free, ThreadPoolExecutor(workers) as pool, records.open("a") as file:
        nearest = Nearest(ROOT, quick_files())

        def one(mutant: Mutant) -> tuple[Mutant, Tried]:
            copy = free.get()
            try:
                return mutant, tried(
                    copy, mutant, [Path("tests")] if whole else nearest.of(ROOT / mutant.path)
                )
            finally:
                free.put(copy)

        left = [mutant for mutant in mutants if mutant.key not in known]
        for number, (mutant, outcome) in enumerate(pool.map(one, left), 1):
            known[mutant.key] = outcome
            file.write(json.dumps({"key": mutant.key, **vars(outcome)}) + "\n")
            file.flush()
            print(f"{number} of {len(left)}: {outcome.outcome}: {mutant.path}:{mutant.line}", file=sys.stderr)
    return known


def read(records: Path) -> dict[str, Tried]:
    """What an earlier call judged, by the mutants' keys."""
    if not records.exists():
        return {}
    lines = map(json.loads, records.read_text().splitlines())
    return {line.pop("key"): Tried(**line) for line in lines}


@contextmanager
def copies(count: int) -> Iterator[SimpleQueue[Path]]:
    """Copies of the project, one for each worker: the checkout is never touched."""
    free: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for number in range(count):
            copy = Path(folder) / str(number)
            for name in COPIED:
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            for path in ROOT.iterdir():
                if path.is_file():
                    shutil.copy2(path, copy)
            free.put(copy)
        yield free


def quick_files() -> list[Path]:
    """Test files that hold a quick test."""
    words = [
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-n0",
        "-m",
        QUICK,
        "tests",
    ]  # with addopts, a line a file
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    names = {line.rpartition(": ")[0] for line in done.stdout.splitlines() if line.startswith("tests/")}
    if not names:
        raise SystemExit(f"no test could be collected: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return [ROOT / name for name in sorted(names)]


def tried(copy: Path, mutant: Mutant, files: list[Path]) -> Tried:
    """Runs the tests over the copy with the mistake in it, and takes it out again."""
    if not files:
        return Tried(UNTESTED, "", 0.0)
    names = [str(path.relative_to(ROOT) if path.is_absolute() else path) for path in files]
    usual = without(copy, tuple(names))
    if usual is None:
        return Tried(BROKEN, " ".join(names), 0.0)
    source = copy / mutant.path
    right = source.read_text()
    began = time.monotonic()
    try:
        source.write_text(mutant.text)
        status, output = pytest(copy, names, limit=60 + 10 * usual)
    finally:
        source.write_text(right)
    seconds = round(time.monotonic() - began, 1)
    if status is None:
        return Tried(SLOW, " ".join(names), seconds)
    if status == 0:
        return Tried(SURVIVED, " ".join(names), seconds)
    return Tried(KILLED, first_failure(output), seconds)


_usual: dict[tuple[str, ...], float | None] = {}


def without(copy: Path, names: tuple[str, ...]) -> float | None:
    """Seconds that the files take without a mistake; None if they do not pass."""
    if names not in _usual:
        began = time.monotonic()
        status, output = pytest(copy, list(names), limit=1200)
        _usual[names] = time.monotonic() - began if status == 0 else None
        if status:
            print(f"without any mistake: {first_failure(output)}", file=sys.stderr)
    return _usual[names]


def pytest(copy: Path, names: list[str], limit: float) -> tuple[int | None, str]:
    """Exit status and output of the quick tests in the files, up to a failure; None past the limit."""
    words = ["-m", "pytest", "-n0", "-x", "-q", "-p", "no:cacheprovider", "-m", QUICK]
    command = [sys.executable, *words, *names]
    env = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return None, ""
    return process.returncode, output


def first_failure(output: str) -> str:
    """The line that names the test which failed, else the last line."""
    lines = [
        line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))
    ] or output.splitlines()
    return lines[-1][:300] if lines else ""


def report(mutants: list[Mutant], outcomes: dict[str, Tried]) -> int:
    """Prints how many of each outcome there are by package, and every survivor that has no reason."""
    reasons = yaml.safe_load(EQUIVALENT.read_text()) or {}
    rows: dict[str, Counter[str]] = {}
    left: list[Mutant] = []
    for mutant in mutants:
        outcome = outcomes[mutant.key].outcome
        alive = outcome in (SURVIVED, UNTESTED)
        word = "equivalent" if alive and mutant.key in reasons else "survived" if alive else "killed"
        word = outcome if outcome == BROKEN else word
        rows.setdefault(package(mutant.path), Counter())[word] += 1
        if word == "survived":
            left.append(mutant)
    print(table(rows))
    for mutant in left:
        print(f"\n{mutant.path}:{mutant.line} ({mutant.operator})\n- {mutant.before}\n+ {mutant.after}")
    return 1 if left else 0


def package(path: str) -> str:
    """The folder that the table has a row for: two deep in the pipelines and workloads."""
    parts = Path(path).parts[:-1]
    return "/".join(parts[:2])


def table(rows: dict[str, Counter[str]]) -> str:
    """Markdown: a row for each package with the share killed of those that are not equivalent."""
    total: Counter[str] = sum(rows.values(), Counter())
    lines = ["| package | planted | killed | survived | equivalent | share |", "|---|---|---|---|---|---|"]
    for name, row in [*sorted(rows.items()), ("all", total)]:
        judged = row["killed"] + row["survived"]
        share = f"{row['killed'] / judged:.0%}" if judged else ""
        counts = " | ".join(str(row[word]) for word in ("killed", "survived", "equivalent"))
        lines.append(f"| {name} | {row.total()} | {counts} | {share} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
