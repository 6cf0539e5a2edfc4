"""What a comparison says beside its numbers: scatter, clocks, disturbance, what is missing or left out."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measured import change, compared, simulated, spec_of, write

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.store.records import Kind, Manifest, SweepFolder

LEVELS = {"work": ["single"], "slab": [2, 4]}


def test_scatter_beyond_the_plans_is_a_warning_of_its_own(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels=LEVELS), measure={"rounds": 10})
    (warning,) = compared(*simulated(sweep, lambda levels: 1.0, noise=0.1)).noise
    assert warning.startswith("this machine was noisy: pairs scatter by ")
    assert "the plan assumed 2.0%" in warning


def test_scatter_within_the_plans_is_no_warning(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels=LEVELS), measure={"rounds": 10})
    assert compared(*simulated(sweep, lambda _: 1.0)).noise == ()


def test_the_share_of_process_and_layout_is_said_where_processes_ran_several_rounds(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels=LEVELS), measure={"rounds": 10})
    folder, manifest = simulated(sweep, lambda levels: 1.0, noise=0.01)
    assert not any("process and layout" in note for note in compared(folder, manifest).notes)
    for record in folder.path.glob("trials/*/p*-r*/record.json"):
        number = int(record.parent.name.split("-")[1][1:])
        change(record, server=number // 2)
    (note,) = (one for one in compared(folder, manifest).notes if "process and layout" in one)
    assert "% of the variance (F " in note


@pytest.fixture
def swept(command) -> Callable[..., tuple[SweepFolder, Manifest]]:
    """A sweep of one arm and its reference in four rounds, as if no machine had disturbed it."""

    def make(**measure: Any) -> tuple[SweepFolder, Manifest]:
        design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
        references = {"naive": {}, "late": {"work": "single"}}
        sweep = command(design, references=references, measure={"rounds": 4, "repeats": 4, **measure})
        return simulated(sweep, lambda levels: 1.0)

    return make


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


def test_a_quota_of_cpu_time_is_said_with_the_machine(swept) -> None:
    for quota, words in ((0.7, "2 CPU cores of which a quota allows 0.7"), (2.0, "2 CPU cores")):
        folder, manifest = swept()
        for record in folder.path.glob("trials/*/*/record.json"):
            change(record, environment={"cores": 2, "cpu_limit": quota})
        assert compared(folder, manifest).machine.startswith(words)
        assert ("quota" in compared(folder, manifest).machine) == (quota < 2)


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


def test_a_loop_that_grows_is_told(swept) -> None:
    folder, manifest = swept()
    assert notes_of((folder, manifest), " grows: ") == []
    reference = manifest.sweep.references["naive"]
    for record in folder.path.glob(f"trials/{reference}/p000-evidence-*/record.json"):
        change(record, quantities={"time_growth": 0.5, "memory_growth": 65536.0})
    (note,) = notes_of((folder, manifest), " grows: ")
    assert "its iterations became 50% slower and each adds 64 kB of memory" in note


def test_code_that_is_compiled_again_and_again_is_told_with_the_guard_that_mostly_fails(swept) -> None:
    folder, manifest = swept()
    assert notes_of((folder, manifest), "compiles again") == []
    (effect,) = [one for one in manifest.effects if one.design == "one_at_a_time"][:1]
    ((arm, _),) = effect.pairs
    for record, reason in zip(timings(folder, arm), ["size of x", "lr", "lr", "lr"], strict=True):
        change(record, recompiles=7, recompile_reason=reason)
    (note,) = notes_of((folder, manifest), "compiles again")
    assert note.endswith(": compiles again 7 times in a trial, mostly because of lr")


@pytest.mark.parametrize(("count", "told"), [(0, []), (1, []), (2, ["2 of 8"]), (8, ["8 of 8"])])
def test_disturbance_is_told_from_a_quarter_of_the_trials_on(swept, count: int, told: list[str]) -> None:
    folder, manifest = swept(repeats=0)
    for number, record in enumerate(timings(folder)[:count], 1):
        change(record, disturbed=[f"swap {number}"])
    found = [line for line in compared(folder, manifest).noise if "timing trials were disturbed" in line]
    assert [note.partition(" timing")[0] for note in found] == told
    assert all(f"the last by: swap {count}; " in note or count == 8 for note in found)


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
    change(timings(folder)[0], code="another")
    assert notes_of((folder, manifest), "records of") == ["1 records of other code are left out"]
    assert len(notes_of((folder, manifest), "measured again")) == 1


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


def test_what_an_arm_waits_for_is_told_where_the_devices_work_is_known(swept) -> None:
    folder, manifest = swept()
    assert notes_of((folder, manifest), "-bound") == []
    (arm,) = {effect.pairs[0][0] for effect in manifest.effects}
    busy = 0.3 * 1e9 / 100  # of a region of a second with a hundred units
    write(folder, spec_of(manifest, arm, "p000", None, Kind.COUNTING), counters={"device_busy_ns": busy})
    (note,) = notes_of((folder, manifest), "-bound")
    assert re.fullmatch(r"late: host-bound: the device works \d+% of the time", note)


def test_a_reference_that_computes_something_else_where_it_is_timed_is_named(swept) -> None:
    folder, manifest = swept()
    naive = manifest.sweep.references["naive"]
    for record in timings(folder, naive):
        change(record, numbers={"norm": 2.0}, reached=10)
    write(folder, spec_of(manifest, naive, "p000", None, Kind.COURSE), course={10: {"norm": 1.0}})
    (note,) = notes_of((folder, manifest), "norm")
    assert note == "baseline naive: timed norm is 2 after 10 iterations, and untimed 1"


def test_twenty_files_that_cannot_be_read_are_named_and_the_others_counted(swept) -> None:
    folder, manifest = swept(rounds=12, repeats=0)
    for count, said, more in ((20, 20, []), (22, 21, ["skipped: 2 more files that could not be read"])):
        for record in timings(folder)[:count]:
            record.write_text("{")
        found = notes_of((folder, manifest), "skipped: ")
        assert len(found) == said and found[20:] == more and "record.json" in found[0]


def test_what_so_many_rounds_can_show_is_told_from_the_spread_they_have(swept) -> None:
    (note,) = notes_of(swept(), "you can see")
    assert note.startswith("with 4 rounds you can see ") and "% spread between pairs" in note
