"""Plants small mistakes, one at a time, in a copy of the code; lists those that the nearest quick tests miss.

    make mutants SEED=1 COUNT=300
    make mutants SEED=1 COUNT=300 ARGS=--wider

Equal seeds draw equal mutants from equal sources. What was judged stays in the file of records: the same
command goes on where it stopped. `--wider` asks sixty quick files of what is left, and then the nearest files
of the longer tiers. A mutant that changes nothing which can be seen is in equivalent.yaml, with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import yaml

from mutants.judged import KILLED, TIERS, Copy, nearest, sources
from mutants.planted import Mutant, sample

ROOT = Path(__file__).resolve().parents[3]
EQUIVALENT = Path(__file__).with_name("equivalent.yaml")
Records = dict[tuple[str, str], str]
"""Outcome by mutant and tier."""

copy: Copy
"""Of this process."""


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
    file = options.records or ROOT / f"build/mutants/{options.seed}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    known, reasons = _read(file, options.again), yaml.safe_load(EQUIVALENT.read_text()) or {}
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        file.open("a") as records,
        ProcessPoolExecutor(
            options.workers, get_context("fork"), _make_copy, (Path(folder), options.patience)
        ) as pool,
    ):
        for tier in TIERS if options.wider else ("quick",):
            left = [
                one for one in mutants if verdict(one.key, known) != KILLED and (one.key, tier) not in known
            ]
            for number, found in enumerate(pool.map(_judge, left, [tier] * len(left)), 1):
                known[found["key"], tier] = found["outcome"]
                print(json.dumps(found), file=records, flush=True)
                print(f"{number} of {len(left)}: {found['outcome']}: {found['key']}", file=sys.stderr)
    print("\n".join(report(mutants, known, reasons)))
    return int(any(verdict(one.key, known, reasons) == "survived" for one in mutants))


def _read(file: Path, again: bool) -> Records:
    """What an earlier call judged; without what survived, to judge that once more."""
    lines = map(json.loads, file.read_text().splitlines() if file.exists() else ())
    known = {(line["key"], line["tier"]): line["outcome"] for line in lines}
    return {key: outcome for key, outcome in known.items() if outcome == KILLED or not again}


def _make_copy(folder: Path, patience_s: float) -> None:
    global copy
    copy = Copy(ROOT, folder / str(os.getpid()), patience_s)


def _judge(mutant: Mutant, tier: str) -> dict[str, str]:
    outcome, by = copy.tried(mutant, nearest(ROOT, ROOT / mutant.path, tier), TIERS[tier][0])
    return {"key": mutant.key, "tier": tier, "outcome": outcome, "by": by}


def verdict(key: str, known: Records, reasons: Sequence[str] | dict[str, str] = ()) -> str:
    """A column of the table: which tier noticed the mutant, or why none did."""
    killing = [tier for tier in TIERS if known.get((key, tier)) == KILLED]
    if killing:
        return KILLED if killing[0] == "quick" else "later"
    return "equivalent" if key in reasons else "survived"


def report(mutants: Sequence[Mutant], known: Records, reasons: dict[str, str]) -> Iterator[str]:
    """Markdown: packages with the shares killed of what is not equivalent; then every survivor.

    `later` are those that only farther files or longer tiers noticed, as the second share counts them too.
    """
    rows: dict[str, Counter[str]] = {}
    for one in mutants:
        for row in ("/".join(Path(one.path).parts[:-1][:2]), "all"):
            rows.setdefault(row, Counter())[verdict(one.key, known, reasons)] += 1
    yield "| package | planted | killed | later | survived | equivalent | share | by all that was asked |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, row in sorted(rows.items(), key=lambda item: (item[0] == "all", item)):
        judged = row.total() - row["equivalent"]
        counts = [row.total(), *(row[word] for word in (KILLED, "later", "survived", "equivalent"))]
        shares = [f"{n / judged:.0%}" if judged else "" for n in (row[KILLED], judged - row["survived"])]
        yield f"| {name} | {' | '.join(map(str, (*counts, *shares)))} |"
    for one in mutants:
        if verdict(one.key, known, reasons) == "survived":
            yield f"\n{one.path}:{one.line} ({one.operator})\n- {one.before}\n+ {one.after}"


if __name__ == "__main__":
    sys.exit(main())
