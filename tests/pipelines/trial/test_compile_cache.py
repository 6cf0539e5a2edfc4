"""Compiled code on disk: cold where it is counted, warm and unchanging where it is timed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfsweep.pipelines.analysis import collect, compare
from perfsweep.pipelines.config.types import DesignConfig, MeasureConfig, SweepCommand, SweepConfig
from perfsweep.pipelines.execution import launch
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.records import Kind, Manifest, SweepFolder, read_record
from perfsweep.pipelines.trial.compile_cache import VARIABLES, compile_cache, link_files
from perfsweep.pipelines.trial.machine.environment import can_compile
from perfsweep.workloads.api import Device

FEW: dict[str, Any] = {
    "rounds": 2,
    "evidence_iterations": 2,
    "servers": 1,
    "repeats": 0,
    "timed_parity": False,
}


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    (folder / "ab").mkdir(parents=True)
    (folder / "ab" / "kernel.so").write_text("compiled")
    return folder


@pytest.mark.parametrize(
    ("kind", "cold", "finds", "leaves"),
    [
        (Kind.COUNTING, False, False, True),
        (Kind.EVIDENCE, False, True, True),
        (Kind.TIMING, False, True, False),
        (Kind.EVIDENCE, True, False, False),
    ],
)
def test_what_a_trial_finds_and_what_it_leaves(
    tmp_path: Path, shared: Path, kind: Kind, cold: bool, finds: bool, leaves: bool
) -> None:
    own, known = tmp_path / "own", {"ab/kernel.so": "compiled"}
    with compile_cache(kind, shared, own, cold):
        compilers = {"TORCHINDUCTOR_CACHE_DIR": f"{own}", "TRITON_CACHE_DIR": f"{own}/triton"}
        assert {name: os.environ[name] for name in VARIABLES} == compilers
        assert files(own) == (known if finds else {})
        (own / "cd").mkdir()
        (own / "cd" / "new.so").write_text("new")
        (own / "cd" / "half.lock").write_text("")
    assert files(shared) == known | ({"cd/new.so": "new"} if leaves else {})
    assert not own.exists()


def test_a_trial_that_fails_leaves_nothing_and_the_environment_as_it_was(
    tmp_path: Path, shared: Path, monkeypatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "before")
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    with pytest.raises(RuntimeError), compile_cache(Kind.COUNTING, shared, tmp_path / "own"):
        (tmp_path / "own" / "torn.so").write_text("to")
        raise RuntimeError
    assert files(shared) == {"ab/kernel.so": "compiled"}
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "before"
    assert "TRITON_CACHE_DIR" not in os.environ


def test_files_are_copied_where_they_cannot_be_linked(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    link_files(shared, tmp_path / "own")
    link_files(shared, tmp_path / "own")
    assert files(tmp_path / "own") == {"ab/kernel.so": "compiled"}


def test_files_that_name_others_name_those_where_they_are_taken_to(tmp_path: Path) -> None:
    """Triton lists the files of a kernel by their paths, and finds none that has gone with its folder."""
    own, shared, later = (tmp_path / name for name in ("own", "shared", "later"))
    kernel = own / "triton" / "ABC"
    kernel.mkdir(parents=True)
    (kernel / "add.cubin").write_text("code")
    (kernel / "__grp__add.json").write_text(
        json.dumps({"child_paths": {"add.cubin": f"{kernel / 'add.cubin'}"}})
    )
    for source, target in ((own, shared), (shared, later), (own, shared)):
        link_files(source, target)
        place = target / "triton" / "ABC"
        assert sorted(path.name for path in place.iterdir()) == ["__grp__add.json", "add.cubin"]
        named = json.loads((place / "__grp__add.json").read_text())
        assert named == {"child_paths": {"add.cubin": f"{place / 'add.cubin'}"}}


@pytest.mark.slow
def test_a_kernel_that_was_compiled_once_is_found_by_later_trials(tmp_path: Path) -> None:
    """Compiled for an H100, which takes none, in processes that begin with nothing in memory."""
    code = """
import sys
from pathlib import Path
import triton
from triton_targets import build
from perfsweep.pipelines.store.trial_schema import Kind
from perfsweep.pipelines.trial.compile_cache import compile_cache
from perfsweep.workloads.prover.kernels.triton_trunk import _activate
pointers = ("product_ptr", "next_ptr", "bias_ptr", "scale_ptr", "shift_ptr", "x_ptr")
types = {**dict.fromkeys(pointers, "*fp32"), "width": "i32", "eps": "fp32"}
triton.knobs.compilation.listener = lambda **said: print(said["cache_hit"])
with compile_cache(Kind(sys.argv[1]), Path(sys.argv[2]) / "shared", Path(sys.argv[2]) / "own"):
    build(_activate, types, {"RESIDUAL": True, "W": 64}, 90)
"""
    found = [
        subprocess.run(
            [sys.executable, "-c", code, kind, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for kind in ("counting", "timing")
    ]
    assert found == [["False"], ["True"]]


@pytest.mark.slow
@pytest.mark.skipif(not can_compile(), reason="torch.compile finds no C++ compiler")
def test_a_compiled_arm_is_counted_cold_and_timed_warm(tmp_path: Path) -> None:
    command = SweepCommand(
        workload={"name": "digits", "model": "mlp", "eval_every": 1, "checkpoint_every": 1},
        measure=MeasureConfig(iterations=8, warmup_max=40, counting_iterations=2, **FEW),
        sweep=SweepConfig(
            name="compiled", designs=[DesignConfig("one_at_a_time", levels={"compile": ["default"]})]
        ),
        runs=str(tmp_path),
    )
    folder, manifest = prepared(command)
    run = PackRun(folder, manifest, manifest.packs[0])
    arm = next(arm for arm in manifest.arms if arm.label != "baseline")
    run.support(arm, Kind.COUNTING)
    before = files_of(folder.cache_dir)
    run.run()
    timed = [read_record(path) for path, _, stage, _ in folder.trial_dirs(arm.id) if stage.startswith("r")]
    warm = [record.compile_s for record in timed if record]
    (result,) = compare.compare(folder, manifest, collect.collect(folder, manifest)).effects
    assert before, "the counting trial left nothing"
    assert result.compile_s is not None and result.warm_compile_s is not None
    assert max(warm) < 0.7 * result.compile_s, (warm, result.compile_s)
    assert files_of(folder.cache_dir / "compiler"), "timed trials come from a process that has compiled"


@pytest.mark.slow
@pytest.mark.skipif(not can_compile(), reason="torch.compile finds no C++ compiler")
def test_a_cache_on_disk_acts_where_its_arm_is_timed(tmp_path: Path) -> None:
    """Counting trials start with nothing in both arms, so timing trials must give the counter."""
    command = SweepCommand(
        workload={"name": "toys.compiled:Compiled"},
        measure=MeasureConfig(iterations=5, warmup_max=5, counting_iterations=1, **FEW),
        sweep=SweepConfig(
            name="cached", designs=[DesignConfig("one_at_a_time", levels={"compile_cache": ["shared"]})]
        ),
        runs=str(tmp_path),
    )
    folder, manifest = prepared(command)
    for pack in manifest.packs:
        PackRun(folder, manifest, pack).run()
    result = compare.compare(folder, manifest, collect.collect(folder, manifest))
    (effect,) = result.effects
    assert effect.outcome == "", effect
    assert effect.compile_s is not None and effect.warm_compile_s is not None
    assert effect.warm_compile_s < 0.5 * effect.compile_s
    rulings = {ruled.claim.section: ruled.ruling for ruled in result.rulings}
    assert rulings["1"] == "confirmed", rulings


def prepared(command: SweepCommand) -> tuple[SweepFolder, Manifest]:
    manifest = plan.make_plan(command, Device(compiler=True))
    folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    return folder, manifest


def files_of(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if path.is_file()}
