"""Profiling an arm: real profiles of small workloads, what they cost, and what goes wrong."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from toys import phased
from toys.phased import FLOPS, slow_part
from typed import ended

from perfsweep.pipelines.config.types import (
    DesignConfig,
    MeasureConfig,
    ProfileConfig,
    SweepCommand,
    SweepConfig,
)
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.profiling import profiled_process
from perfsweep.pipelines.profiling.profile_trials import CHANGED, Profiling, arm_called, wanted
from perfsweep.pipelines.store.profiles import (
    Cost,
    Kept,
    ProfileSpec,
    kept_profiles,
    read_profile,
    read_spec,
    write_spec,
)
from perfsweep.pipelines.store.records import Manifest, Outcome, SweepFolder, TrialRecord, read_record
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError

TOY = "toys.phased:Phased"
QUICK = MeasureConfig(iterations=6, warmup_max=6, timeout_s=120)

Profiled = Callable[..., Kept]


def planned(folder: Path, workload: str = TOY, **toggles: Any) -> Manifest:
    command = SweepCommand(
        workload={"name": workload}, toggles=toggles, measure=QUICK, sweep=SweepConfig(name="profile")
    )
    return plan.alone(plan.single_arm(command, Device()), command)


def ran(
    folder: Path, tool: str, workload: str = TOY, toggles: dict[str, Any] | None = None, **options: Any
) -> TrialRecord:
    """A profile process, here and now."""
    manifest = planned(folder, workload, **(toggles or {}))
    spec = Profiling(SweepFolder(folder), manifest, manifest.arms[0]).spec()
    place = folder / tool
    file = write_spec(place, ProfileSpec(trial=spec, options=ProfileConfig(tool=tool, **options)))
    assert profiled_process.main([str(file)]) == 0
    record = read_record(place)
    assert record is not None and not (place / "scratch").exists()
    return record


@pytest.fixture
def profiled(tmp_path: Path) -> Profiled:
    """Profiles the toy with a tool; it must succeed."""

    def make(tool: str, workload: str = TOY, toggles: dict[str, Any] | None = None, **options: Any) -> Kept:
        record = ran(tmp_path, tool, workload, toggles, **options)
        assert record.outcome is Outcome.OK, record.failure
        return read_profile(tmp_path / tool)

    return make


def line_of(function: Any) -> int:
    return function.__code__.co_firstlineno


def cost(kept: Kept, name: str) -> Cost:
    return next(cost for cost in kept.profile.costs if cost.name == name)


def test_sampling_finds_a_function_and_its_line(profiled: Profiled) -> None:
    kept = profiled("pyinstrument", slice="0:40")
    assert cost(kept, "slow_part").self_ns > 0
    assert cost(kept, "slow_part").where.endswith(f"toys/phased.py:{line_of(slow_part)}")
    assert {file.name for file in kept.files} == {"profile.txt", "profile.html", "profile.speedscope.json"}
    assert "slow_part" in (kept.folder / "profile.txt").read_text()
    frames = json.loads((kept.folder / "profile.speedscope.json").read_text())["shared"]["frames"]
    assert "slow_part" in {frame["name"] for frame in frames}


def test_a_trace_holds_the_active_iterations_and_every_operator(profiled: Profiled) -> None:
    kept = profiled("torch", toggles={"products": 2}, wait=1, warmup=1, active=3, repeats=2)
    assert (kept.profile.slice, kept.profile.iterations) == ("iterations 2:5", 6)
    assert cost(kept, "aten::mm").calls == 2 * 6
    assert cost(kept, "aten::copy_").calls == 6
    with gzip.open(kept.folder / "trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    assert sum(event.get("name") == "aten::mm" for event in events) == 2 * 3
    assert "aten::mm" in (kept.folder / "operators.txt").read_text()


def test_graph_breaks_are_explained_with_their_place(profiled: Profiled) -> None:
    torch._dynamo.reset()
    kept = profiled("dynamo", toggles={"compile": "on"})
    assert kept.profile.facts["compiled_graphs"] == 2
    assert kept.profile.facts["graph_breaks"] == 1
    (broken,) = (line for line in kept.profile.findings if line.startswith("graph break"))
    assert f"phased.py:{line_of(phased.broken) + 3} in broken" in broken
    assert "graph_break" in (kept.folder / "explanation.txt").read_text()
    assert "broken" in {one.name for one in kept.profile.costs}


def test_the_recorder_can_be_off_and_python_can_log_everything(profiled: Profiled) -> None:
    kept = profiled("pyinstrument", slice="0:4", hook="off", debug_log="on")
    assert kept.profile.phases == {}
    assert kept.profile.variant == "hook off, debug log on"
    assert any("workload.debug_log=true" in note for note in kept.profile.notes)
    assert "debug_log True" in (kept.folder / "debug.log").read_text()


def test_what_goes_wrong_in_the_workload_is_an_outcome(tmp_path: Path) -> None:
    record = ran(tmp_path, "torch", toggles={"trouble": "oom"})
    assert (record.outcome, record.failure and record.failure.type) == (Outcome.OOM, "MemoryError")
    assert not (tmp_path / "torch" / "profile.json").exists()


def test_work_in_other_processes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phased.Phased, "child_usage", lambda self: 1.0)
    record = ran(tmp_path, "memory")
    assert (record.outcome, record.failure and record.failure.message) == (
        Outcome.UNSUPPORTED,
        "its work is done in other processes, where a profiler of this one sees nothing; write a profiler"
        " into the command",
    )


def test_a_forked_process_writes_its_log_next_to_what_it_found_and_another_rank_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiled_process, "detach", logs := list[Path]().append)
    manifest = planned(tmp_path)
    trial = Profiling(SweepFolder(tmp_path), manifest, manifest.arms[0]).spec()
    options = ProfileConfig(tool="memory", slice="first")
    file = write_spec(tmp_path / "memory", ProfileSpec(trial=trial, options=options))
    assert profiled_process.main([str(file), "1"]) == 0
    names = {one.name for one in file.parent.iterdir()}
    assert names == {"spec.json", "status.json", "scratch"}
    assert (file.parent / "scratch/profile1/memory.npz").exists()
    profiled_process.forked(str(file))
    assert logs.__self__ == [file.parent / "log.txt"]  # type: ignore[attr-defined]
    names = {one.name for one in file.parent.iterdir()}
    assert names == {"spec.json", "status.json", "record.json", "profile.json", "memory.npz"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_memory_of_a_real_device_is_told_by_who_holds_it(profiled: Profiled) -> None:
    kept = profiled("memory", "digits")
    assert (kept.folder / "snapshot.pickle").stat().st_size > 0
    assert kept.profile.facts["in_use_bytes"] > 0


def asked(tool: str = "all", **changes: Any) -> tuple[list[str], list[str]]:
    options, refused = wanted(ProfileConfig(tool=tool, **changes))
    return [one.folder_name for one in options], refused


def test_all_means_every_tool_that_the_device_supports() -> None:
    assert asked() == (["pyinstrument", "torch", "memory", "roofline", "dynamo"], [])
    tools, (reason,) = asked(slice="first")
    assert tools == ["pyinstrument", "torch", "memory", "dynamo"] and "has no roofline" in reason


def test_both_makes_a_profile_of_each_circumstance() -> None:
    names, _ = asked("pyinstrument", hook="both", debug_log="both")
    base = "pyinstrument"
    assert names == [base, f"{base}-debug-log-on", f"{base}-hook-off", f"{base}-hook-off-debug-log-on"]


def test_arms_are_found_by_name_label_and_id(tmp_path: Path) -> None:
    manifest = planned(tmp_path, products=2)
    (arm,) = manifest.arms
    assert {arm_called(manifest, name).id for name in ("products=2", arm.id, arm.id[:6])} == {arm.id}
    with pytest.raises(ConfigError, match=r"--arm product=2 is no arm of .*did you mean products=2\?"):
        arm_called(manifest, "product=2")
    alike = tuple(replace(arm, id=f"abcd{letter * 12}", label=letter) for letter in "xyz")
    for arms in (alike, alike[:2]):
        with pytest.raises(ConfigError, match=r"--arm abcd is several arms of .*; choose from: "):
            arm_called(manifest.model_copy(update={"arms": arms}), "abcd")


MISTAKES = [
    (
        ["workload=digits", "profile.tool=vtune"],
        "profile.tool=vtune is unknown; choose from: pyinstrument, torch, memory",
    ),
    (["workload=digits", "profile.tool=roofline", "profile.slice=first"], "first has no roofline"),
    (["--diff", "here", "there"], "here is no folder of a profile"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_mistake_is_one_sentence(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    status = ended("profile", *arguments)
    err = capsys.readouterr().err
    assert status == 2
    assert message in err and len(err.strip().splitlines()) == 1


def command(*words: str) -> int:
    return ended("profile", *words)


@pytest.mark.slow
def test_the_command_profiles_in_processes_of_its_own_and_compares_two_arms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way: two arms, and their difference."""
    monkeypatch.chdir(tmp_path)
    options = ["profile.tool=torch", "profile.repeats=1", "measure.warmup_max=6", "measure.timeout_s=300"]
    for products in (1, 2):
        assert command(f"workload={TOY}", f"toggles.products={products}", *options) == 0
    folder = SweepFolder("runs/phased-profile")
    assert [kept.profile.arm.label for kept in kept_profiles(folder)] == ["baseline", "products=2"]
    assert not list(folder.path.glob("trials/*"))
    out = capsys.readouterr().out
    assert "x: " in out and "per iteration with torch" in out
    assert max(map(len, out.splitlines())) <= 100
    assert command(str(folder.path), "--diff", "baseline", "products=2") == 0
    assert "aten::mm" in capsys.readouterr().out


@pytest.mark.slow
def test_an_arm_of_a_sweep_is_profiled_as_the_sweep_measured_it_and_linked_in_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    design = DesignConfig(kind="one_at_a_time", toggles=["products"])
    sweep = SweepConfig(name="demo", designs=[design])
    planned = plan.make_plan(
        SweepCommand(workload={"name": TOY, "debug_log": True}, measure=QUICK, sweep=sweep), Device()
    )
    folder = SweepFolder("runs/phased-demo")
    older = planned.sweep.model_copy(update={"code": "of an older commit"})
    folder.write_manifest(planned.model_copy(update={"sweep": older}))
    folder.report_file.write_text("as it was before")
    assert command(str(folder.path), "--arm", "products=2", "profile.tool=roofline", "profile.repeats=1") == 0
    (kept,) = kept_profiles(folder)
    assert (kept.profile.arm.label, cost(kept, "multiply").flops) == (
        "products=2",
        2 * FLOPS * kept.profile.iterations,
    )
    assert read_spec(kept.folder / "spec.json").trial.config == {"debug_log": True}
    assert kept.profile.notes[0] == CHANGED
    assert kept.folder.name in folder.report_file.read_text()
    assert CHANGED in " ".join(capsys.readouterr().out.split())
    assert command(str(folder.path)) == 2
    assert (
        "--arm is missing; say which arm of phased-demo to profile: naive, baseline, products=2"
        in capsys.readouterr().err
    )
