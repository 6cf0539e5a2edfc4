"""What a comparison says next to its numbers: scatter, clocks, the kernel, gaps, and what is left out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from measured import change, compared, cost, simulated, spec_of, write

from perfsweep.pipelines.analysis.failed_trials import missing_rounds, notes_on_other_machines
from perfsweep.pipelines.analysis.notes import kernel_notes, machine_notes
from perfsweep.pipelines.config.types import ClusterConfig, DesignConfig
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Kind, Manifest, SweepFolder

LEVELS = {"work": ["single"], "slab": [2, 4]}


def test_scatter_beyond_the_plans_is_a_warning_of_its_own(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels=LEVELS), measure={"rounds": 10})
    (warning,) = compared(*simulated(sweep, lambda levels: 1.0, noise=0.1)).noise
    assert warning.startswith("this machine was noisy: pairs scatter by ")
    assert "the plan assumed 2.0%" in warning
    quiet = command(DesignConfig("one_at_a_time", levels=LEVELS), measure={"rounds": 10}, name="quiet")
    assert compared(*simulated(quiet, lambda _: 1.0)).noise == (), "within the plan's"


@pytest.fixture
def swept(command) -> Callable[..., tuple[SweepFolder, Manifest]]:
    """A sweep of one arm and its reference in four rounds, as if no machine had disturbed it."""

    def make(**measure: Any) -> tuple[SweepFolder, Manifest]:
        design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
        references = {"naive": {}, "late": {"work": "single"}}
        sweep = command(design, references=references, measure={"rounds": 4, "repeats": 4, **measure})
        return simulated(sweep, lambda levels: 1.0)

    return make


@pytest.mark.parametrize(("measure", "said"), [({}, 0), ({"margin": 0.02}, 1)])
def test_a_margin_of_the_sweeps_own_is_said(swept, measure: dict[str, float], said: int) -> None:
    notes = [note for note in compared(*swept(**measure)).notes if "no difference" in note]
    assert notes == ["in this sweep less than 2 % either way is no difference (measure.margin)"] * said


@pytest.mark.parametrize(("count", "said"), [(0.0, []), (0.2, ["a log was off"])])
def test_what_a_workload_remarks_on_a_counter_is_said_where_a_baseline_counted_any(
    command, count: float, said: list[str]
) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels=LEVELS), measure={"rounds": 4})
    folder, manifest = simulated(sweep, lambda levels: 1.0)
    counting = spec_of(manifest, next(iter(manifest.sweep.references.values())), "p000", None, Kind.COUNTING)
    write(folder, counting, counters={"silenced": count})
    remarks = {"remarks": (("silenced", "a log was off"),)}
    own = manifest.sweep.declared.model_copy(update=remarks)
    manifest = manifest.model_copy(update={"sweep": manifest.sweep.model_copy(update={"declared": own})})
    assert [note for note in compared(folder, manifest).notes if "was off" in note] == said


MODEL = "AMD EPYC(TM) 9R45 64-Core Processor @ 2.60GHz, family 26 model 2"
FEATURES = ["avx2", "avx512f", "avx512_bf16"]


def test_the_processor_is_named_with_its_family_and_its_vectors(swept) -> None:
    folder, manifest = swept()
    own = {"cores": 1, "cpu_model": MODEL, "cpu_features": FEATURES, "cpu_capability": "AVX512"}
    for record in folder.path.glob("trials/*/*/record.json"):
        change(record, environment=own)
    words = "1 CPU core, AMD EPYC 9R45 64-Core, family 26 model 2 (AVX512, avx512_bf16)"
    assert compared(folder, manifest).machine.partition(", torch")[0] == words
    for record in folder.path.glob("trials/*/*/record.json"):
        change(record, environment={**own, "device": {"type": "cuda", "name": "a GPU", "capability": None}})
    assert compared(folder, manifest).machine.partition(", torch")[0] == "a GPU"


def timings(folder: SweepFolder, arm: str = "*", rounds: str = "*") -> list[Path]:
    return sorted(folder.path.glob(f"trials/{arm}/p000-r{rounds}-a0/record.json"))


def notes_of(swept: tuple[SweepFolder, Manifest], words: str) -> list[str]:
    return [note for note in compared(*swept).notes if words in note]


@pytest.mark.parametrize(("count", "told"), [(0, []), (1, []), (2, ["2 of 8"])])
def test_disturbance_is_told_from_a_quarter_of_the_trials_on(swept, count: int, told: list[str]) -> None:
    folder, manifest = swept(repeats=0)
    for number, record in enumerate(timings(folder)[:count], 1):
        change(record, disturbed=[f"swap {number}"])
    found = [line for line in compared(folder, manifest).noise if "timing trials were disturbed" in line]
    assert [note.partition(" timing")[0] for note in found] == told
    assert all(f"the last by: swap {count}; " in note for note in found)


def test_rounds_that_were_measured_again_and_records_of_other_experiments_are_told(swept) -> None:
    folder, manifest = swept()
    assert notes_of((folder, manifest), "do not count") == notes_of((folder, manifest), "left out") == []
    for records, words in (
        (timings(folder, rounds="000"), "1 round was"),
        (timings(folder), "4 rounds were"),
    ):
        for record in records:
            again = record.parent.with_name(record.parent.name.replace("-a0", "-a1")) / record.name
            again.parent.mkdir(exist_ok=True)
            again.write_bytes(record.read_bytes())
            change(again, attempt=1, disturbed=[])
            change(record, disturbed=["a swap"])
        (note,) = notes_of((folder, manifest), "measured again")
        assert note == f"{words} disturbed and measured again; the disturbed attempts do not count"
    for key, why in (("code", "other code"), ("method", "other settings of measure")):
        change(timings(folder)[0], **{key: "another"})
        assert notes_of((folder, manifest), "records of") == [f"1 records of {why} are left out"]
        change(timings(folder)[0], **{key: getattr(manifest.sweep, key, manifest.sweep.measure.method)})
    assert len(notes_of((folder, manifest), "measured again")) == 1


def test_arms_that_grow_are_compiled_again_or_fault_more_and_a_slow_machine_are_told(swept) -> None:
    folder, manifest = swept()
    naive, late = manifest.sweep.references.values()
    words = (" grows: ", "compiles again", "minor faults", "the calibration loop")
    assert [notes_of((folder, manifest), one) for one in words] == [[]] * 4
    for record in folder.path.glob(f"trials/{naive}/p000-evidence-*/record.json"):
        change(record, quantities={"time_growth": 0.5, "memory_growth": 65536.0})
    for record, reason in zip(timings(folder, late), ["size of x", "lr", "lr", "lr"], strict=True):
        change(record, recompiles=7, recompile_reason=reason, minor_faults=10**6)
    for number, record in enumerate(timings(folder)):
        change(record, calibration_ns=25_000_000 if number == 0 else 20_000_000)
    ((grows,), (again,), (faults,), (slow,)) = (notes_of((folder, manifest), one) for one in words)
    assert "its iterations became 50% slower and each adds 64 kB of memory" in grows
    assert again.endswith(": compiles again 7 times in a trial, mostly because of lr")
    assert faults.startswith("minor faults an iteration: 0 of naive, ") and " of late; " in faults
    assert slow.startswith("the calibration loop ran up to 25% slower before 1 of 8 timing trials")


def test_a_reference_without_a_round_is_named_where_others_have_some(swept) -> None:
    folder, manifest = swept()
    assert notes_of((folder, manifest), "has no finished round") == []
    naive, late = manifest.sweep.references.values()
    for record in timings(folder, late):
        change(record, outcome="oom", failure={"type": "X", "message": ""})
    (note,) = notes_of((folder, manifest), "has no finished round")
    assert note == "baseline late has no finished round, so nothing is compared with it"
    for record in timings(folder, naive):
        change(record, outcome="oom", failure={"type": "X", "message": ""})
    assert notes_of((folder, manifest), "has no finished round") == []


NAMES = {arm: arm.upper() for arm in "abcdefg"}
SECOND_NS = 10**9


def trials(*rows: tuple[str, float, float], iterations: int = 10, region_s: float = 1.0) -> pl.DataFrame:
    """A trial for each row: arm, minor faults an iteration, share of the time in the kernel."""
    return pl.DataFrame(
        [
            (arm, iterations, region_s, round(faults * iterations), round(share * region_s * SECOND_NS))
            for arm, faults, share in rows
        ],
        schema=["arm", "iterations", "region_s", "minor_faults", "system_ns"],
        orient="row",
    )


def notes(*rows: tuple[str, float, float], **measured: float) -> list[str]:
    return kernel_notes(trials(*rows, **measured), NAMES, "a")  # type: ignore[arg-type]


def test_arms_that_spend_more_or_less_time_in_the_kernel_are_named() -> None:
    rows = [("a", 0, 0.20), ("b", 0, 0.205), ("c", 0, 0.1), ("d", 0, 0.5)]
    assert notes(*rows, region_s=2.0) == ["system time: 20 % of A's time, 50 % of D's, 10 % of C's"]


def calibrated(*packs: tuple[str, list[int | None]]) -> list[str]:
    rows = [(pack, ns) for pack, every in packs for ns in every]
    schema = {"pack": pl.String, "calibration_ns": pl.Int64}
    return machine_notes(pl.DataFrame(rows, schema=schema, orient="row"))


def test_a_machine_that_was_slow_before_some_trials_is_told_by_the_usual_time_of_its_node() -> None:
    found = calibrated(("p0", [100, 100, 100, 130, 106]), ("p1", [200, 200, 200, None]))
    assert found == ["the calibration loop ran up to 30% slower before 2 of 9 timing trials"]


@pytest.fixture
def sweep(command: Callable) -> Callable[..., tuple[SweepFolder, Manifest]]:
    """A sweep of three rounds, an arm and the reference in each pack."""

    def make(levels: int = 1) -> tuple[SweepFolder, Manifest]:
        design = DesignConfig("one_at_a_time", levels={"slab": list(range(2, 2 + levels))})
        cluster = ClusterConfig(executor="inprocess", arms_per_pack=2)
        return simulated(command(design, measure={"rounds": 3}, cluster=cluster), cost)

    return make


def said(folder: SweepFolder, manifest: Manifest) -> list[str]:
    return list(missing_rounds(read_progress(folder, manifest), manifest))


def lose(folder: SweepFolder, pack: str, number: int) -> None:
    """Let a round have no records."""
    for record in folder.path.glob(f"trials/*/{pack}-r{number:03d}-*"):
        shutil.rmtree(record)


def fail(folder: SweepFolder, pack: str, outcome: str, **failure: str) -> None:
    """Let the first rounds of a pack have ended so, so that its last one was not tried."""
    lose(folder, pack, 2)
    for record in folder.path.glob(f"trials/*/{pack}-r*/record.json"):
        change(record, outcome=outcome, **({"failure": failure} if failure else {}))


def test_rounds_that_are_missing_are_counted_by_pack(sweep) -> None:
    folder, manifest = sweep(2)
    lose(folder, "p000", 0)
    lose(folder, "p001", 1)
    lose(folder, "p001", 2)
    assert said(folder, manifest) == [
        "rounds are missing: 1 of 3 in p000, 2 of 3 in p001; the same command measures them"
    ]


def test_rounds_of_arms_that_all_failed_are_not_promised_again(sweep) -> None:
    folder, manifest = sweep()
    fail(folder, "p000", "failed", type="RuntimeError", message="no such file")
    (line,) = said(folder, manifest)
    assert line == "rounds are missing: 1 of 3 in p000, since every arm failed and was not started again"
    fail(folder, "p000", "oom", type="OutOfMemoryError", message="8 GiB")
    assert said(folder, manifest) == []


def test_what_ran_on_another_machine_is_told_with_what_sets_it_apart(sweep) -> None:
    folder, manifest = sweep(2)
    assert notes_on_other_machines(read_progress(folder, manifest), manifest) == []
    for record in folder.path.glob("trials/*/p001-r*/record.json"):
        change(record, keys={"device": "other"})
    lose(folder, "p001", 0)
    (note,) = notes_on_other_machines(read_progress(folder, manifest), manifest)
    assert note == (
        "4 timing trials are left out: device is other and not fake; pairs in p001 are in tables of"
        " their own, for other; on a cluster, cluster.gpu_type or cluster.constraint keeps packs on one kind"
    )
