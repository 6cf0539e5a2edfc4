"""Comparison of sweeps with known times: effects, references, mixtures and gaps; and of large ones."""

from __future__ import annotations

import gc
import json
import math
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from budget import of_its_machine
from measured import change, compared, cost, simulated, spec_of, write
from toys.spinner import Spinner

from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.collect import collect
from perfsweep.pipelines.analysis.compare import Comparison, Reference, compare
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.analysis.failed_trials import FailedTrials
from perfsweep.pipelines.config.types import ClusterConfig, DesignConfig
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.report.sentences import open_questions
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.options import ReportConfig
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Effect, Kind, Manifest, Outcome, SweepFolder, write_evidence
from perfsweep.workloads.api import Claim, Device, Evidence

ROUNDS = {"rounds": 10}


def test_trials_that_contradict_themselves_say_nothing_of_memory_either(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure=ROUNDS)
    folder, manifest = simulated(sweep, cost)
    (before,) = compared(folder, manifest).effects
    (single,) = (arm.id for arm in manifest.arms if arm.label == "work=single")
    for record in sorted(folder.path.glob(f"trials/{single}/p000-r00*/record.json"))[:6]:
        change(record, units=math.nan, peak_bytes=10**12)
    (after,) = compared(folder, manifest).effects
    assert (after.rounds, after.memory_bytes) == (4, before.memory_bytes)


def test_trials_that_cannot_be_true_are_left_out_in_one_note_however_many_there_are(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure=ROUNDS)
    folder, manifest = simulated(sweep, cost, iterations=20)
    for record in list(folder.path.glob("trials/*/p000-r00*/record.json"))[:6]:
        change(record, region_ns=10)
    (said,) = (note for note in compared(folder, manifest).notes if "cannot be true" in note)
    assert said.startswith(
        f"6 timing trials are left out: their records cannot be true; the first: {folder.path}"
    )


def test_a_floor_is_said_in_a_note_and_calls_smaller_effects_undecided(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"slab": [2]}), measure={**ROUNDS, "placebo": 1})
    folder, manifest = simulated(sweep, lambda levels: 0.97 if levels["slab"] == 2 else 1.0, noise=0.001)
    again = next(arm.id for arm in manifest.arms if arm.placebo)
    for record in folder.path.glob(f"trials/{again}/p000-r*/record.json"):
        change(record, region_ns=round(json.loads(record.read_text())["region_ns"] * 1.05))
    found = compared(folder, manifest)
    slab, equal = found.effects
    assert equal.verdict is Verdict.SLOWER
    assert slab.verdict is Verdict.UNDECIDED and slab.p is not None and slab.p < 0.01
    assert any(note.startswith("placebos, which equal the baseline, show up to 5.") for note in found.notes)


def test_effects_that_share_a_name_are_told_apart_by_what_their_bases_are_called(command) -> None:
    design = {"kind": "one_at_a_time", "levels": {"sign": ["wrong"]}}
    sweep = command(
        *(DesignConfig(**design, reference=name) for name in ("naive", "small")),
        references={"naive": {}, "small": {"work": "single", "slab": 8}},
        measure=ROUNDS,
    )
    found = compared(*simulated(sweep, cost))
    unsure = [replace(one, verdict=Verdict.UNDECIDED, outcome="") for one in found.effects]
    (said,) = open_questions(replace(found, effects=tuple(replace(one, low=None) for one in unsure)))
    assert "sign=wrong against baseline" in said and "sign=wrong against small" in said


LOST = 0.3
"""Share of its wall time for which others had the core of the arm."""


def with_lost_time(folder: SweepFolder, manifest: Manifest, arm: str) -> tuple[SweepFolder, Manifest]:
    """Stretch the regions of an arm by what others had of its core."""
    for found in folder.path.glob("trials/*/*-r*/record.json"):
        values = json.loads(found.read_text())
        own_ns = values["region_ns"]
        if manifest.arm(values["arm"]).label == arm:
            wall_ns = round(own_ns / (1 - LOST))
            change(found, region_ns=wall_ns, lost_ns=wall_ns - own_ns, region_cpu_ns=own_ns)
        else:
            change(found, lost_ns=0, region_cpu_ns=own_ns)
    return folder, manifest


def test_what_others_had_of_the_core_makes_no_arm_slower(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure=ROUNDS)
    sweep.report, sweep.workload["size"] = ReportConfig(["wall", "cpu"]), 32
    alike = simulated(sweep, lambda levels: 1.0)
    comparison = compared(*with_lost_time(*alike, "work=single"))
    (effect,) = comparison.effects
    assert effect.ratio == pytest.approx(1.0, rel=0.01)
    assert effect.verdict in (Verdict.NO_DIFFERENCE, Verdict.UNDECIDED)
    ratios = [effect.quantities[name].ratio for name in ("wall", "cpu")]
    assert ratios == [pytest.approx(1 / (1 - LOST), rel=0.01), pytest.approx(1.0, rel=0.01)]
    base, arm = comparison.arms
    assert arm.ns_per_unit == pytest.approx(base.ns_per_unit, rel=0.01)
    assert arm.quantities["wall"] == pytest.approx(arm.ns_per_unit / (1 - LOST), rel=0.01)
    assert arm.quantities["cpu"] == arm.ns_per_unit
    assert [one.key for one in comparison.quantities] == ["wall", "cpu"]
    assert (comparison.workload, comparison.options) == ("toys.spinner:Spinner", {"size": 32})
    assert comparison.reference == Reference("naive", pytest.approx(base.ns_per_unit, rel=0.01), 10)


def test_a_comparison_that_is_over_keeps_no_records(command) -> None:
    """The table that a command shows is made again and again, of all records."""
    folder, manifest = simulated(command(DesignConfig("ladder", levels={"slab": [2]}), measure=ROUNDS), cost)
    progress = read_progress(folder, manifest)
    compare(folder, manifest, collect(folder, manifest, progress), progress)
    records = weakref.ref(progress)
    del progress
    gc.collect()
    assert records() is None


def test_a_sweep_that_did_a_sample_of_its_work_says_so(command) -> None:
    folder, manifest = simulated(
        command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure=ROUNDS), cost
    )
    assert not any("extrapolated" in note for note in compared(folder, manifest).notes)
    for arm in manifest.arms:
        trial = folder.trial_dir(spec_of(manifest, arm.id, "p000", None, Kind.EVIDENCE))
        write_evidence(trial, Evidence({"trace": np.ones(4)}, {"count": 4.0, "sampled_share": 0.25}))
    assert any("extrapolated" in note and "25%" in note for note in compared(folder, manifest).notes)


@pytest.mark.parametrize(("share", "marked"), [(0.4, []), (0.57, ["57% of its work"])])
def test_a_reference_that_works_mostly_for_what_has_ended_is_marked(command, share, marked) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure=ROUNDS)
    folder, manifest = simulated(sweep, cost)
    (name, arm), *_ = manifest.sweep.references.items()
    counting = spec_of(manifest, arm, "p000", None, Kind.COUNTING)
    write(folder, counting, counters={"idle_share": share})
    notes = [note for note in compared(folder, manifest).notes if "ended already" in note]
    assert len(notes) == len(marked) and all(f"{name}: {words}" in notes[0] for words in marked)


def test_a_reference_without_rounds_leaves_the_report_standing(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}))
    manifest = plan.make_plan(sweep, Device())
    folder = SweepFolder(Path(sweep.runs) / manifest.sweep.name)
    folder.write_manifest(manifest)
    found = compared(folder, manifest)
    assert found.reference is None
    assert [effect.word for effect in found.effects] == ["no rounds yet"]


def test_a_claim_about_an_arm_that_ran_out_of_memory_is_open_and_one_about_another_device_not_measurable(
    command,
) -> None:
    sweep = command(
        DesignConfig("one_at_a_time", levels={"work": ["single"], "device_only": ["on"]}), measure=ROUNDS
    )
    folder, manifest = simulated(sweep, cost)
    for effect in manifest.effects:
        for record in folder.path.glob(f"trials/{effect.pairs[0][0]}/*/record.json"):
            outcome = "oom" if effect.toggle == "work" else "unsupported"
            change(record, outcome=outcome, failure={"type": "X", "message": "no"})
    rulings = {one.claim.text: (one.ruling, one.reason) for one in compared(folder, manifest).rulings}
    assert rulings["half the work is twice as fast"] == ("undecided", "oom")
    assert rulings["the device does it"] == ("not measurable here", "needs a CUDA device")


def test_a_claim_about_another_size_is_not_ruled_on_and_one_about_this_size_is(command, monkeypatch) -> None:
    seconds = {"kind": "predicate", "figure": "seconds_per_iteration", "low": 0.0}
    claims = [
        Claim(f"{size}", "toy", "9", ({"work": "single"},), setting={"size": (size,)}, **seconds)
        for size in (48, 4800)
    ]
    arms = [
        Claim(f"arm {size}", "toy", "9", ({},), setting={"size": (size,)}, **seconds) for size in (48, 4800)
    ]
    monkeypatch.setattr(Spinner, "claims", (*claims, *arms))
    found = compared(
        *simulated(command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure=ROUNDS), cost)
    )
    assert {one.claim.text: one.ruling for one in found.rulings} == {"48": "confirmed", "arm 48": "confirmed"}


def on_two_machines(command, **second: object) -> tuple[SweepFolder, Manifest]:
    """Two packs, the second of which ran on another GPU and on whatever data is told."""
    sweep = command(DesignConfig("ladder", levels={"slab": [2, 4, 8, 16]}), measure={"rounds": 4})
    sweep.cluster = ClusterConfig(executor="slurm", arms_per_pack=3)
    folder, manifest = simulated(sweep, cost)
    reference = next(iter(manifest.sweep.references.values()))
    for record in folder.path.glob("trials/*/p001-r*/record.json"):
        own = {} if record.parts[-3] == reference else second
        change(record, keys={"device": "H100", **own}, region_ns=10**8)
    return folder, manifest


def test_the_rounds_of_the_reference_are_those_of_all_packs(command) -> None:
    sweep = command(DesignConfig("ladder", levels={"slab": [2, 4, 8, 16]}), measure={"rounds": 4})
    sweep.cluster = ClusterConfig(executor="slurm", arms_per_pack=3)
    found = compared(*simulated(sweep, cost)).reference
    assert found and (found.rounds, found.packs) == (8, 2)


def test_pairs_on_another_machine_have_effects_of_their_own_beside_those_that_count(command) -> None:
    folder, manifest = on_two_machines(command)
    found = compared(folder, manifest)
    (other,) = found.elsewhere
    there = {one.effect.level for one in other.effects}
    assert other.machine == "H100" and len(there) == 2
    assert all(one.rounds == 4 and one.ratio == pytest.approx(1) for one in other.effects)
    assert there == {one.effect.level for one in found.effects if not one.rounds}
    assert found.failed and len(found.missing) == 1
    assert found.reference and (found.reference.rounds, found.reference.packs) == (4, 1)


def test_arms_that_had_other_data_are_compared_on_no_machine(command) -> None:
    folder, manifest = on_two_machines(command, data="other")
    assert [one.effects for one in compared(folder, manifest).elsewhere] == [()]


def test_of_an_arm_that_had_several_data_the_trials_with_those_of_most_count(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure=ROUNDS)
    folder, manifest = simulated(sweep, cost)
    ((arm, _),) = manifest.effects[0].pairs
    for record in sorted(folder.path.glob(f"trials/{arm}/*-r*/record.json"))[:3]:
        change(record, keys={"device": "fake", "data": "other"})
    found = compared(folder, manifest)
    assert [effect.rounds for effect in found.effects] == [7]
    said = "3 timing trials of work=single are left out: they had other data; "
    assert [note.startswith(said) for note in found.notes if "left out" in note] == [True]


@pytest.mark.parametrize(
    ("effects", "arms", "failures", "failed"),
    [
        (((None, None, "oom"),), (1.0, None), (), False),
        (((None, None, "unsupported"), (None, None, "base oom")), (1.0,), (), False),
        (((None, None, ""),), (1.0,), (), True),
        ((), (1.0, None), ("oom",), False),
        ((), (None, None), ("oom",), True),
        ((), (1.0,), ("failed",), True),
    ],
)
def test_a_sweep_has_failed_where_a_time_is_missing_that_could_be_or_nothing_was_timed(
    effects: tuple, arms: tuple, failures: tuple, failed: bool
) -> None:
    effect = Effect(id="e", design="d", toggle="t", level="l", pairs=(("a", "b"),))
    found = Comparison(
        "demo",
        "pair",
        0.01,
        None,
        tuple(
            EffectResult(effect, "a", "b", Verdict(word) if word else None, ratio, outcome=why)
            for word, ratio, why in effects
        ),
        tuple(ArmResult("a", 6, ns, None, {}) for ns in arms),
        (),
        failures=tuple(FailedTrials("a", "", Outcome(one), "", "", Path(), False) for one in failures),
    )
    assert found.failed is failed
    assert replace(found, missing=("rounds are missing",)).failed


TRIALS, ITERATIONS = 600, 10_000
SECONDS, GIBIBYTES = 8.0, 1.0

COMPARE = """
import json, re, sys, time
from pathlib import Path
from perfsweep.pipelines.commands.comparison import compare
start = time.process_time()
status = compare(sys.argv[1])
# Not ru_maxrss: across fork and exec it keeps the size of the process that runs the tests.
peak_kb = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
print(json.dumps({"status": status, "seconds": time.process_time() - start, "gibibytes": peak_kb / 2**20}))
"""


@pytest.mark.slow
def test_six_hundred_trials_are_compared_in_eight_seconds_and_a_gibibyte(command) -> None:
    rounds = 40
    slabs = list(range(2, TRIALS // rounds + 1))
    design = DesignConfig("one_at_a_time", levels={"slab": slabs})
    folder, manifest = simulated(command(design, measure={"rounds": rounds}), cost, iterations=ITERATIONS)
    assert len(manifest.arms) * rounds == TRIALS
    support = Path(__file__).parents[2] / "support"
    script = f"import sys; sys.path.insert(0, {str(support)!r})\n{COMPARE}"
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder.path)], capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert folder.report_file.exists()
    assert of_its_machine(found["seconds"]) < SECONDS, found
    assert found["gibibytes"] < GIBIBYTES, found
