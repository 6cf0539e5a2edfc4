"""`perfsweep describe`: what a level needs, and why it cannot act."""

from __future__ import annotations

import pytest

from perfsweep.pipelines.commands import list as listing
from perfsweep.workloads.api import Device

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
