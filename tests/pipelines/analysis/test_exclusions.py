"""What rules an arm out: the same records, as a comparison and as a search judges them."""

from __future__ import annotations

from pathlib import Path

import pytest
from measured import change, cost, simulated, spec_of, write

from perfsweep.pipelines.analysis.arm_records import ArmRecords
from perfsweep.pipelines.analysis.exclusions import BASE, Exclusions
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.parity.evidence import Agreement
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.statistics.verdicts import Judgement, ReasonCode, Verdict
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Kind, Manifest, SweepFolder, read_evidence, write_evidence
from perfsweep.workloads.api import Evidence, Parity

OOM = {"outcome": "oom", "failure": {"type": "OutOfMemoryError", "message": "no memory\nfor a matrix"}}


class Sweep:
    """A sweep of one level, measured, whose records a test changes."""

    def __init__(self, folder: SweepFolder, manifest: Manifest) -> None:
        self.folder, self.manifest = folder, manifest
        (self.effect,) = manifest.effects
        ((self.arm, self.base),) = self.effect.pairs

    def timings(self, arm: str) -> list[Path]:
        return sorted(self.folder.path.glob(f"trials/{arm}/*-r*/record.json"))

    def count(self, arm: str, **counters: float) -> None:
        write(self.folder, spec_of(self.manifest, arm, "p000", None, Kind.COUNTING), counters=counters)

    def exclusions(self, **limits) -> Exclusions:
        progress = read_progress(self.folder, self.manifest)
        agreement = Agreement(self.manifest, progress, read_evidence)
        return Exclusions(self.manifest, ArmRecords(progress, self.manifest.packs), agreement, **limits)


@pytest.fixture
def measured(command) -> Sweep:
    design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
    return Sweep(*simulated(command(design, measure={"rounds": 4}), cost))


def test_an_arm_whose_base_never_ran_has_no_effect_and_may_still_be_recommended(measured: Sweep) -> None:
    for record in measured.timings(measured.base):
        change(record, **OOM)
    exclusion = measured.exclusions().of_effect(measured.effect)
    assert exclusion is not None
    assert (exclusion.outcome, exclusion.reason) == (BASE + "oom", "its base baseline: no memory")
    assert measured.exclusions().of_arm(measured.arm) is None


def test_one_round_without_memory_is_compared_without_it_and_never_recommended(measured: Sweep) -> None:
    change(measured.timings(measured.arm)[0], **OOM)
    assert measured.exclusions().of_effect(measured.effect) is None
    exclusion = measured.exclusions().of_arm(measured.arm)
    assert exclusion is not None and exclusion.outcome == "oom"


def test_arms_that_were_counted_in_different_units_have_no_effect(measured: Sweep) -> None:
    for arm, unit in ((measured.arm, "example"), (measured.base, "iteration")):
        for record in measured.timings(arm):
            change(record, unit=unit)
    exclusion = measured.exclusions().of_effect(measured.effect)
    assert exclusion is not None and exclusion.outcome == "other units"
    assert "examples and iterations" in exclusion.reason and "workload.units" in exclusion.reason


def judged(code: ReasonCode) -> Judgement:
    return Judgement(Verdict.UNDECIDED, None, code=code)


def idle(sweep: Sweep, code: ReasonCode = ReasonCode.HOLDS_ZERO, parity: str = "identical") -> bool:
    """Whether a level of which it is not known what it changes is seen to do nothing."""
    levels = sweep.manifest.sweep.declared.levels
    own = tuple(one.model_copy(update={"witness": "anything"}) for one in levels["work"])
    declared = sweep.manifest.sweep.declared.model_copy(update={"levels": {**levels, "work": own}})
    planned = sweep.manifest.sweep.model_copy(update={"declared": declared})
    changed = Sweep(sweep.folder, sweep.manifest.model_copy(update={"sweep": planned}))
    result = ParityResult(ParityVerdict(parity), Parity.EXACT)
    found = changed.exclusions().idle(
        [sweep.effect], {sweep.effect.id: result}, {sweep.effect.id: judged(code)}
    )
    assert all(one.reason.startswith("this flag did nothing here") for one in found.values())
    return bool(found)


def test_a_flag_that_shows_in_nothing_did_nothing(measured: Sweep) -> None:
    for arm in (measured.arm, measured.base):
        measured.count(arm, ops=9.0, gc_collections=1.0)
    assert idle(measured)
    for code in (ReasonCode.CALLED_SLOWER, ReasonCode.REACHES_INTO_MARGIN, ReasonCode.TOO_FEW_ROUNDS):
        assert not idle(measured, code), "its time may have moved"
    assert not idle(measured, parity="within tolerance")


@pytest.mark.parametrize(
    ("own", "peak", "nothing"),
    [
        ({"ops": 9.0, "gc_collections": 3.0}, 1000, True),
        ({"ops": 8.0}, 1000, False),
        ({"ops": 9.0}, 1100, False),
    ],
)
def test_a_flag_that_shows_in_a_count_or_in_memory_did_something(
    measured: Sweep, own: dict[str, float], peak: int, nothing: bool
) -> None:
    measured.count(measured.base, ops=9.0, gc_collections=1.0)
    measured.count(measured.arm, **own)
    for record in measured.timings(measured.arm):
        change(record, peak_bytes=peak)
    assert idle(measured) == nothing


def test_other_results_leave_the_times_and_rule_out_a_recommendation(measured: Sweep) -> None:
    trial = measured.folder.trial_dir(spec_of(measured.manifest, measured.arm, "p000", None, Kind.EVIDENCE))
    evidence = read_evidence(trial)
    write_evidence(trial, Evidence({"trace": -evidence.tensors["trace"]}, evidence.numbers))
    assert measured.exclusions().of_effect(measured.effect) is None
    exclusion = measured.exclusions().of_arm(measured.arm)
    assert exclusion is not None and exclusion.outcome == "different"


def test_results_that_could_not_be_checked_are_never_recommended(measured: Sweep) -> None:
    trial = measured.folder.trial_dir(spec_of(measured.manifest, measured.arm, "p000", None, Kind.EVIDENCE))
    (trial / "evidence.npz").unlink()
    exclusion = measured.exclusions().of_arm(measured.arm)
    assert exclusion is not None and exclusion.outcome == "unchecked"


def test_reasons_name_what_was_counted_compiled_for_or_computed_otherwise(measured: Sweep) -> None:
    for arm in (measured.arm, measured.base):
        measured.count(arm, products=3.0, compile_s=30.04)
    inert = measured.exclusions().of_arm(measured.arm)
    slow = measured.exclusions(compile_s=10.0).of_arm(measured.base)
    assert inert is not None and inert.reason == "products is the same with and without it"
    assert slow is not None and slow.reason == "compiles for 30.0 s, and tune.compile_s=10"
    assert measured.exclusions(compile_s=30.04).of_arm(measured.base) is None, "a limit may be reached"


def test_an_arm_is_inert_by_its_level_alone_and_not_by_what_is_measured_against_it(measured: Sweep) -> None:
    for arm in (measured.arm, measured.base):
        measured.count(arm, products=3.0)
    turned = ((measured.base, measured.arm),)
    for own, outcome in (({}, "inert"), ({"design": "leave_one_out"}, None), ({"pairs": turned}, None)):
        effects = (measured.effect.model_copy(update=own),)
        measured.manifest = measured.manifest.model_copy(update={"effects": effects})
        found = measured.exclusions().of_arm(measured.arm)
        assert (found.outcome if found else None) == outcome
