"""Every claim of the reports with its ruling here, gathered from the sweeps that were measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.analysis import claim_refusals
from pipelines.analysis.rulings import SCHEMA, evidence_text
from pipelines.statistics.claims import Ruling
from workloads.api import Claim, Device, Toggle

FILE = Path("tables") / "rulings.parquet"
_WEIGHT = {"confirmed": 3, "exceeded": 3, "refuted": 3, "undecided": 2, "not measurable here": 1}
_DESIGN = {"one_at_a_time": 2, "arm": 2, "factorial": 1}
"""Where one claim was ruled on several times: a toggle by itself says more about it than a toggle among
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


def ledger(
    workload: str, claims: Iterable[Claim], toggles: Sequence[Toggle], rulings: pl.DataFrame, device: Device
) -> list[Entry]:
    """List the claims of a workload, an entry each, in the order of the report."""
    own = rulings.filter(pl.col("workload") == workload)
    return [
        _entry(
            workload,
            claim,
            toggles,
            own.filter((pl.col("claim") == claim.text) & (pl.col("section") == claim.section)),
            device,
        )
        for claim in claims
    ]


def _entry(
    workload: str, claim: Claim, toggles: Sequence[Toggle], rulings: pl.DataFrame, device: Device
) -> Entry:
    if rulings.height:
        row = max(rulings.iter_rows(named=True), key=_rank)
        return Entry(workload, claim, row["ruling"], _evidence(row))
    if standing := claim_refusals.obstacles(claim, toggles, device):
        refusal = claim_refusals.refusal(claim, toggles, device)
        words = [claim_refusals.obstacle_text(standing), *([f"({refusal})"] if refusal else [])]
        return Entry(workload, claim, Ruling.NOT_MEASURABLE.value, " ".join(words))
    where = [
        f"workload.{name}={'|'.join('null' if one is None else str(one) for one in values)}"
        for name, values in claim.setting.items()
    ]
    tests = " or ".join(_levels(levels) for levels in claim.arms)
    return Entry(workload, claim, "not measured yet", f"tests it: {' '.join([tests, *where])}")


def _rank(row: dict[str, Any]) -> tuple[int, int]:
    return _WEIGHT.get(str(row["ruling"]), 0), _DESIGN.get(str(row["design"]), 0)


def _evidence(row: dict[str, Any]) -> str:
    where = f"{row['subject']} in {row['sweep']}, {row['machine']}"
    shown = evidence_text(*(row[name] for name in ("figure", "value", "ratio", "low", "high")))
    return f"{', '.join(part for part in (row['reason'], shown) if part)} ({where})".lstrip()


def _levels(levels: object) -> str:
    assert isinstance(levels, dict)
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
