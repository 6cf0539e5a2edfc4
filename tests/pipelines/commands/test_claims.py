"""`perfsweep claims`: each report's claims with their rulings, on a terminal and as a page."""

from __future__ import annotations

import io
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from perfsweep.pipelines.analysis.claim_ledger import FILE
from perfsweep.pipelines.analysis.rulings import SCHEMA
from perfsweep.pipelines.commands import claims
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError

TOY = "toys.spinner:Spinner"


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


def test_the_command_prints_tables_for_this_machine_or_the_page_of_published_results(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims.environment, "device_facts", Device)
    assert claims.claims(TOY, str(runs), markdown=False) == 0
    printed = capsys.readouterr().out
    assert "1 confirmed" in printed and f"skipped: {runs / 'spoilt'}" in printed.replace("\n", "")
    assert not printed.startswith("#")
    assert claims.claims(TOY, str(runs), markdown=True) == 0
    assert capsys.readouterr().out == claims.page(TOY, claims.RESULTS)
