"""Plants small mistakes, one at a time, in a copy of the code; lists those that the nearest quick tests miss.

    make mutants SEED=1 COUNT=300
    make mutants SEED=1 COUNT=300 ARGS=--wider

Equal seeds draw equal mutants from equal sources. What was judged stays in the file of records: the same
command goes on where it stopped. `--wider` asks of what is left the sixty nearest quick files, those that
import the source through others too, and then the nearest ones of the longer tiers. Those that change nothing
which anybody could see stand in equivalent.yaml, each with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue

import yaml

from mutants.copies import LONGER, QUICK, SURVIVED, UNTESTED, Copy, Tried
from mutants.nearest import Nearest, longer_files, quick_files, sources
from mutants.positions import Mutant, sample

ROOT = Path(__file__).resolve().parents[3]
EQUIVALENT = Path(__file__).with_name("equivalent.yaml")
ALIVE = (SURVIVED, UNTESTED)
WIDE = 60
"""Of so many quick files a forked process runs the tests in half a minute; all of them take five."""


def main() -> int:
    """Judges a sample and prints the table; status 1 if anything survived that is not known as equivalent."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="sources whose path begins with this")
    parser.add_argument("--wider", action="store_true", help="ask farther files and longer tiers of the rest")
    parser.add_argument("--records", type=Path, help="default: build/mutants/SEED.jsonl")
    parser.add_argument("--again", action="store_true", help="judge what survived once more")
    parser.add_argument("--patience", type=float, default=180.0, help="seconds that one test may take")
    options = parser.parse_args()
    chosen = [path for path in sources(ROOT) if str(path.relative_to(ROOT)).startswith(options.only)]
    if not chosen:
        parser.error(f"--only {options.only}: no source begins so")
    mutants = sample(ROOT, chosen, options.count, options.seed)
    records = options.records or ROOT / f"build/mutants/{options.seed}.jsonl"
    records.parent.mkdir(parents=True, exist_ok=True)
    reasons = yaml.safe_load(EQUIVALENT.read_text()) or {}
    tiers = [judge(mutants, records, Nearest(ROOT, quick_files(ROOT)), QUICK, options)]
    if options.wider:
        for name, near, tier in (
            ("wide", Nearest(ROOT, quick_files(ROOT), WIDE, WIDE), QUICK),
            ("longer", Nearest(ROOT, longer_files(ROOT)), LONGER),
        ):
            left = [one for one in mutants if verdict(one.key, tiers, reasons) == SURVIVED]
            tiers.append(judge(left, records.with_suffix(f".{name}.jsonl"), near, tier, options))
    return report(mutants, tiers, reasons)


def judge(
    mutants: list[Mutant], records: Path, nearest: Nearest, tier: str, options: argparse.Namespace
) -> dict[str, Tried]:
    """Tries every mutant that the file of records does not know yet by a tier's files, and adds it there."""
    known = read(records)
    if options.again:
        known = {key: one for key, one in known.items() if one.outcome not in ALIVE}
    left = [mutant for mutant in mutants if mutant.key not in known]
    workers = max(1, min(options.workers, len(left)))
    with (
        copies(workers, options.patience) as free,
        ThreadPoolExecutor(workers) as pool,
        records.open("a") as file,
    ):

        def one(mutant: Mutant) -> tuple[Mutant, Tried]:
            tests = nearest.of(ROOT / mutant.path)
            copy = free.get()
            try:
                return mutant, copy.tried(mutant, [str(path.relative_to(ROOT)) for path in tests], tier)
            finally:
                free.put(copy)

        for number, (mutant, outcome) in enumerate(pool.map(one, left), 1):
            known[mutant.key] = outcome
            file.write(json.dumps({"key": mutant.key, **vars(outcome)}) + "\n")
            file.flush()
            where = f"{mutant.path}:{mutant.line}"
            print(f"{number} of {len(left)}: {outcome.outcome}: {where}", file=sys.stderr)
            if outcome.outcome in ALIVE:
                print(f"  - {mutant.before}\n  + {mutant.after}", file=sys.stderr)
    return known


def read(records: Path) -> dict[str, Tried]:
    """What an earlier call judged, by the mutants' keys."""
    if not records.exists():
        return {}
    lines = map(json.loads, records.read_text().splitlines())
    return {line.pop("key"): Tried(**line) for line in lines}


@contextmanager
def copies(count: int, patience_s: float) -> Iterator[SimpleQueue[Copy]]:
    """Copies of the project, one for each worker."""
    free: SimpleQueue[Copy] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ExitStack() as ends:
        for number in range(count):
            copy = Copy(ROOT, Path(folder) / str(number), patience_s)
            ends.callback(copy.close)
            free.put(copy)
        yield free


def report(mutants: list[Mutant], tiers: list[dict[str, Tried]], reasons: dict[str, str]) -> int:
    """Prints how many of each outcome there are by package, and every survivor that has no reason."""
    rows: dict[str, Counter[str]] = {}
    left: list[Mutant] = []
    for mutant in mutants:
        word = verdict(mutant.key, tiers, reasons)
        rows.setdefault(package(mutant.path), Counter())[word] += 1
        if word == SURVIVED:
            left.append(mutant)
    print(table(rows))
    for mutant in left:
        print(f"\n{mutant.path}:{mutant.line} ({mutant.operator})\n- {mutant.before}\n+ {mutant.after}")
    return 1 if left else 0


def verdict(key: str, tiers: list[dict[str, Tried]], reasons: dict[str, str]) -> str:
    """A column of the table: which tier noticed the mutant, or why none did."""
    for word, tier in zip(("killed", "later", "later"), tiers, strict=False):  # not all may have been asked
        if key in tier and tier[key].outcome not in ALIVE:
            return word
    return "equivalent" if key in reasons else SURVIVED


def package(path: str) -> str:
    """The folder that the table has a row for: two deep in the pipelines and workloads."""
    parts = Path(path).parts[:-1]
    return "/".join(parts[:2])


def table(rows: dict[str, Counter[str]]) -> str:
    """Markdown: a row for each package with the shares killed of those that are not equivalent.

    `later` are those that only farther files or longer tiers noticed: the second share takes account of them.
    """
    total: Counter[str] = sum(rows.values(), Counter())
    lines = [
        "| package | planted | killed | later | survived | equivalent | share | by all that was asked |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in [*sorted(rows.items()), ("all", total)]:
        judged = row["killed"] + row["later"] + row["survived"]
        shares = [
            f"{count / judged:.0%}" if judged else "" for count in (row["killed"], judged - row["survived"])
        ]
        counts = " | ".join(str(row[word]) for word in ("killed", "later", "survived", "equivalent"))
        lines.append(f"| {name} | {row.total()} | {counts} | {shares[0]} | {shares[1]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
