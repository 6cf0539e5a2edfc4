"""Rows of perfsweep describe and claims: what a level needs and why it cannot act; each report's claims."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from rich.console import Console

from perfsweep.pipelines.analysis.across.claim_ledger import FILE
from perfsweep.pipelines.analysis.rulings import SCHEMA
from perfsweep.pipelines.commands import claims
from perfsweep.pipelines.commands import list as listing
from perfsweep.workloads.api import Device, Level, Toggle
from perfsweep.workloads.errors import ConfigError

CPU, GPU = Device("cpu"), Device("cuda")


def on_gpu(device: Device) -> str | None:
    return None if device.type == "cuda" else "needs a GPU"


@dataclass
class Config:
    path: str
    width: int = 16
    names: list[str] = field(default_factory=lambda: ["a"])


class Said:
    """Rank pages.

    For those
    who search.

    And more.
    """


class Silent(Said):
    pass


class Own(Silent):
    """Sort a list."""


def test_each_workload_is_a_name_with_words_beside_it_and_its_sweeps_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(listing.registry, "names", lambda: ["sorter", "grid"])
    monkeypatch.setattr(listing.names, "workloads_here", lambda: ["mine"])
    monkeypatch.setattr(
        listing.names, "purpose", lambda name: {"sorter": "sort " * 12, "grid": "solve"}.get(name)
    )
    monkeypatch.setattr(listing.names, "sweeps", lambda name: ["demo", "chain"])
    assert listing.list_names() == 0
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "grid    solve",
        "        sweeps: demo, chain",
        "sorter  sort sort sort sort sort sort sort sort",
        "        sort sort sort sort",
        "        sweeps: demo, chain",
        "mine    sweeps: demo, chain",
    ]


def test_a_workload_is_described_with_its_purpose_its_fields_its_toggles_and_its_claims(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = SimpleNamespace(source="report", section="3.1", text="[it] is faster")
    cls = type("Sorter", (Own,), {"Config": Config, "unit": "row", "shape": "steps", "claims": (claim,)})
    cls.toggles = (Toggle("amp", (Level("off"), Level("on", unsupported=on_gpu)), "round"),)
    monkeypatch.setattr(listing.registry, "find", {"sorter": cls}.get)
    monkeypatch.setattr(listing.names, "sweeps", lambda name: [f"{name}-demo", "chain"])
    monkeypatch.setattr(listing.environment, "device_facts", lambda: CPU)
    outside = SimpleNamespace(name="sorter", workload={"width": 8}, asked=False, read_as=lambda cls: outside)
    monkeypatch.setattr(listing.external_workload, "read", lambda workload: outside)
    assert listing.describe("the sorter") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "the sorter: unit row, steps-shaped; sweeps: the sorter-demo, chain"
    assert shown[2] == "workload.FIELD=VALUE: path, width=8, names=['a']"
    assert any(line.split()[-3:] == ["needs", "a", "GPU"] for line in shown)
    assert shown[-2] == "claim (report, 3.1): [it] is faster"
    assert shown[-1].endswith(f"most of it for importing {cls.__module__}")


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
