"""Every claim of the reports with its ruling here, gathered from the sweeps that were measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from perfsweep.pipelines.analysis.effect_result import evidence_text
from perfsweep.pipelines.analysis.rulings import SCHEMA, obstacle_text, obstacles, refusal
from perfsweep.pipelines.statistics.claim_rules import Ruling
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.workloads.api import Claim, Device, Levels, Toggle

FILE = Path("tables") / "rulings.parquet"
DECIDED = 3
_WEIGHT: dict[str, int] = {
    **dict.fromkeys((Ruling.CONFIRMED, Ruling.EXCEEDED, Ruling.REFUTED), DECIDED),
    Ruling.UNDECIDED: 2,
    Ruling.NOT_MEASURABLE: 1,
}
_DESIGN = {"one_at_a_time": 2, "arm": 2, "factorial": 1}
"""Where one way was ruled on several times: a toggle by itself says more about it than a toggle among
others."""


@dataclass(frozen=True)
class Entry:
    """One claim; `ruling` is "not measured yet" without a sweep, `evidence` what it rests on, or why not."""

    workload: str
    claim: Claim
    ruling: str
    evidence: str


def gather_rulings(runs: Path) -> tuple[pl.DataFrame, list[str]]:
    """Read the rulings of all sweeps under `runs`, and name the files that could not be read."""
    tables, damaged = [], []
    for file in sorted(runs.glob(f"*/{FILE}")):
        try:
            table = pl.read_parquet(file)
            tables.append(table.select(SCHEMA.keys()).cast(dict(SCHEMA)))  # type: ignore[arg-type]
        except (OSError, pl.exceptions.PolarsError) as error:
            damaged.append(f"{file}: {error}")
    return (pl.concat(tables) if tables else pl.DataFrame(schema=SCHEMA)), damaged


def published_rulings(results: Path) -> pl.DataFrame:
    """Read the rulings that committed result pages show, reports of sweeps in Markdown, as `gather_rulings`.

    Their evidence is in words, and their sweep a link.
    """
    rows = [row for page in sorted(results.glob("*.md")) for row in _rows_of_page(page)]
    return pl.DataFrame(rows, schema=SCHEMA)


def _rows_of_page(page: Path) -> Iterator[dict[str, str]]:
    text = page.read_text()
    machine = re.search(r"^- machine: (.*)$", text, re.MULTILINE)
    only = re.search(r"^## Effects: (.*)$", text, re.MULTILINE)  # rows name a design where there are several
    shared = {
        "workload": page.stem.partition("-")[0],
        "sweep": f"[{page.stem}](results/{page.name})",
        "machine": machine[1] if machine else "unknown",
    }
    table = text.partition("\n## Claims\n")[2].partition("\n## ")[0]
    for line in table.splitlines():
        if row := _PUBLISHED.fullmatch(line):
            cells = {name: value or "" for name, value in row.groupdict().items()}
            alone = cells.pop("alone")
            cells |= {"reason": cells["reason"] or alone}
            design = cells["design"] or (only[1] if only else "")
            yield {**shared, **cells, "design": design.replace(" ", "_")}


_PUBLISHED = re.compile(
    r"\| (?P<subject>.*?)(?: \((?P<design>[a-z ]+)\))?"
    r" \| (?P<claim>.*) \| (?P<source>.*), (?P<section>.*?)"
    rf" \| (?P<ruling>{'|'.join(Ruling)})(?:: (?P<reason>.*)| \((?P<alone>.*)\))? \|"
)
"""A row of the table of claims, as reports in Markdown write it."""


def ledger(
    workload: str, claims: Iterable[Claim], toggles: Sequence[Toggle], rulings: pl.DataFrame, *devices: Device
) -> list[Entry]:
    """List the claims of a workload, an entry each, in the order of the report.

    A claim is not measurable if none of the `devices` can measure it; the reasons are those of the first
    device.
    """
    own = rulings.filter(pl.col("workload") == workload)
    return [
        _entry(
            workload,
            claim,
            toggles,
            own.filter((pl.col("claim") == claim.text) & (pl.col("section") == claim.section)),
            devices,
        )
        for claim in claims
    ]


def _entry(
    workload: str, claim: Claim, toggles: Sequence[Toggle], rulings: pl.DataFrame, devices: Sequence[Device]
) -> Entry:
    if rulings.height:
        rows = sorted(rulings.iter_rows(named=True), key=_rank, reverse=True)
        first = _first_say(rows)
        against = {row["ruling"]: row for row in reversed(rows) if _WEIGHT.get(row["ruling"]) == DECIDED}
        against.pop(first["ruling"], None)
        also = [f"but {ruling}: {_evidence(row)}" for ruling, row in against.items()]
        if first["ruling"] == Ruling.REFUTED:  # as far as its ways can be measured here
            refused = {row["reason"] for row in rows if row["ruling"] == Ruling.NOT_MEASURABLE}
            also += [f"{Ruling.NOT_MEASURABLE.value}: {reason}" for reason in sorted(refused)]
        return Entry(workload, claim, first["ruling"], "; ".join([_evidence(first), *also]))
    standing = [obstacles(claim, toggles, device) for device in devices]
    if all(standing):
        sentence = refusal(claim, toggles, devices[0])
        words = [obstacle_text(standing[0]), *([f"({sentence})"] if sentence else [])]
        return Entry(workload, claim, Ruling.NOT_MEASURABLE.value, " ".join(words))
    where = [
        f"workload.{name}={'|'.join('null' if one is None else str(one) for one in values)}"
        for name, values in claim.setting.items()
    ]
    tests = " or ".join(_levels(levels) for levels in claim.arms)
    return Entry(workload, claim, "not measured yet", f"tests it: {' '.join([tests, *where])}")


def _first_say(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What a claim comes to by its ways, of each of which its best row counts.

    One way that does what is claimed is enough. Without one the claim is open as long as any way is. A way
    that changes results is not open: no time of it would count.
    """
    best: dict[str, dict[str, Any]] = {}
    for row in rows:
        best.setdefault(row["subject"], row)
    return min(best.values(), key=_place)


def _place(row: dict[str, Any]) -> int:
    if row["ruling"] == Ruling.UNDECIDED and row["reason"] != Verdict.DIFFERENT:
        return 1
    return {Ruling.CONFIRMED: 0, Ruling.EXCEEDED: 0, Ruling.REFUTED: 2, Ruling.UNDECIDED: 3}.get(
        row["ruling"], 4
    )


def _rank(row: dict[str, Any]) -> tuple[int, int, float]:
    """An interval says more than a word such as *too noisy*, and a narrow one more than a wide one."""
    shown = _INTERVAL.search(_evidence(row))
    narrow = float(shown[1]) / float(shown[2]) if shown else -1.0
    return _WEIGHT.get(row["ruling"], 0), _DESIGN.get(str(row["design"]), 0), narrow


_INTERVAL = re.compile(r"\[(\d[\d.]*)(?: \.\.|,) (\d[\d.]*)\]")


def _evidence(row: dict[str, Any]) -> str:
    where = f"{row['subject']} in {row['sweep']}, {row['machine']}"
    shown = evidence_text(*(row[name] for name in ("figure", "value", "ratio", "low", "high")))
    return f"{', '.join(part for part in (row['reason'], shown) if part)} ({where})".lstrip()


def _levels(levels: Levels) -> str:
    return ",".join(f"{name}={value}" for name, value in levels.items())


def promise(claim: Claim) -> str:
    """Say what the report promised, as it is ruled on."""
    if claim.kind == "qualitative":
        return str(claim.word)
    subject = claim.figure or "true" if claim.kind == "predicate" else claim.kind
    bounds = [
        f"{sign} {value:g}" for sign, value in ((">=", claim.low), ("<=", claim.high)) if value is not None
    ]
    return f"{subject} {' and '.join(bounds)}".strip()
