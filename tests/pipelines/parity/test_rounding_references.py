"""A reference that computes in fewer digits is matched no closer than its own digits allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines.config.types import DesignConfig, SweepConfig
from perfsweep.pipelines.parity.evidence import Agreement
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.pipelines.plan.plan import make_plan
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.workloads.api import Device, Evidence

EXACT, ROUNDED = {"fuse": "on"}, {"narrow": "on"}
"""Levels of the class exact, and of the class tolerance, whose bound on the sum is 1e-2."""


@pytest.fixture
def judged(command, tmp_path: Path):
    """The verdict on an arm whose sum departs by so much from the one of a reference."""
    arms = {"arm": EXACT, "both": EXACT | ROUNDED}
    designs = [DesignConfig("arms", arms=arms, reference=name) for name in ("naive", "rounded")]
    sweep = command(designs[0], workload="toys.tunable:Tunable")
    sweep.sweep = SweepConfig("references", designs, {"naive": {}, "rounded": ROUNDED})
    manifest = make_plan(sweep, Device())
    nothing = read_progress(SweepFolder(tmp_path / "nothing"), manifest)
    agreement = Agreement(manifest, nothing, lambda folder: Evidence())

    def judge(levels: dict[str, str], reference: dict[str, str], departs: float) -> ParityVerdict:
        arm, base = (
            next(one for one in manifest.arms if {k: v for k, v in one.levels.items() if v == "on"} == wanted)
            for wanted in (levels, reference)
        )
        theirs, ours = (Evidence({}, {"sum": value, "steps": 3.0}) for value in (1.0, 1.0 + departs))
        return agreement.judged(theirs, ours, arm, base).verdict

    return judge


@pytest.mark.parametrize("arm", [EXACT, EXACT | ROUNDED], ids=["exact", "rounded too"])
def test_what_differs_from_a_rounding_reference_by_its_rounding_is_in_tolerance(judged, arm) -> None:
    assert judged(arm, ROUNDED, 5e-3) is ParityVerdict.WITHIN_TOLERANCE
    assert judged(arm, ROUNDED, 5e-2) is ParityVerdict.DIFFERENT


def test_an_exact_reference_is_matched_exactly_whatever_other_references_do(judged) -> None:
    assert judged(EXACT, {}, 5e-3) is ParityVerdict.DIFFERENT
    assert judged(EXACT | ROUNDED, {}, 5e-3) is ParityVerdict.WITHIN_TOLERANCE


def test_a_rounding_reference_still_repeats_itself_exactly(judged) -> None:
    assert judged(ROUNDED, ROUNDED, 5e-3) is ParityVerdict.DIFFERENT
