"""Rows of perfsweep describe and claims: what a level needs and why it cannot act; each report's claims."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from perfsweep.pipelines.analysis.across.claim_ledger import FILE
from perfsweep.pipelines.analysis.rulings import SCHEMA
from perfsweep.pipelines.commands import claims
from perfsweep.pipelines.commands import list as listing
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError

TOY = "toys.spinner:Spinner"


def test_a_workload_is_described_with_its_purpose_its_fields_its_toggles_and_its_claims(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(listing.environment, "device_facts", Device)
    assert listing.describe(TOY) == 0
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert shown[:3] == [
        f"{TOY}: unit product, steps-shaped; sweeps: ablation, placebo",
        "Each iteration multiplies a matrix with itself; the sum of the trace is the result.",
        "workload.FIELD=VALUE: size=48, products=40, pause_s=0.0",
    ]
    rows = [line.split() for line in shown]
    assert ["device_only", "off", "(baseline)", "exact", "acts", "on", "a", "GPU", "only"] in rows
    assert ["on", "exact", "needs", "a", "GPU"] in rows and ["on", "exact", "needs", "work=single"] in rows
    assert ["a", "number", "exact", "any", "integer", "from", "1", "to", "64"] in rows
    assert "claim (toy, 1): half the work is twice as fast" in shown
    assert shown[-1].endswith("most of it for importing toys.spinner")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """One sweep of the toy that confirms its first claim, and an unreadable file."""
    row = dict.fromkeys(SCHEMA) | {"workload": TOY, "section": "1", "claim": "half the work is twice as fast"}
    row |= {"ruling": "confirmed", "reason": "", "subject": "work=single", "sweep": "demo", "machine": "cpu"}
    row |= {"design": "one_at_a_time", "ratio": 0.5, "low": 0.4, "high": 0.6}
    for sweep in ("demo", "spoilt"):
        (tmp_path / sweep / FILE).parent.mkdir(parents=True)
    pl.DataFrame([row], schema=SCHEMA).write_parquet(tmp_path / "demo" / FILE)
    (tmp_path / "spoilt" / FILE).write_bytes(b"not parquet")
    return tmp_path


def shown(runs: Path, *devices: Device, workload: str | None = TOY) -> str:
    console = Console(width=250, record=True, file=io.StringIO())
    claims.show(console, workload, runs, devices or (Device(),))
    return console.export_text()


def test_every_claim_has_a_row_with_its_promise_ruling_and_evidence_and_a_count_below(runs: Path) -> None:
    text = shown(runs)
    assert f"{TOY}: toy" in text
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    claimed = ("half the work is twice as fast", ">= 1.5 and <= 2.5", "confirmed", "work=single in demo, cpu")
    assert [words for words in claimed if words not in rows["1"]] == []
    assert "high" in rows["2"] and "not measured yet" in rows["2"] and "idle=on" in rows["2"]
    assert "not measurable here" in rows["3"]
    (count,) = [line for line in text.splitlines() if " claims: " in line]
    assert count == "3 claims: 1 confirmed, 1 not measured yet, 1 not measurable here"
    assert f"skipped: {runs / 'spoilt' / FILE}" in text.replace("\n", "")


def test_what_a_job_can_be_measured_on_is_open(runs: Path) -> None:
    assert "2 not measured yet" in shown(runs, Device(), Device("cuda", 1))
    with pytest.raises(ConfigError):
        shown(runs, workload="unknown")
