"""Compiled code on disk: cold where it is counted, warm and unchanging where it is timed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from measured import prepared

from perfsweep.pipelines.config.types import DesignConfig, MeasureConfig, SweepCommand, SweepConfig
from perfsweep.pipelines.execution.pack import PackRun
from perfsweep.pipelines.store.records import Kind
from perfsweep.pipelines.trial.machine.environment import can_compile
from perfsweep.pipelines.trial.scratch import VARIABLES, compile_cache, link_files
from perfsweep.workloads.api import Device


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
@pytest.mark.skipif(not can_compile(), reason="torch.compile finds no C++ compiler")
def test_a_compiled_arm_is_counted_cold_and_timed_warm_where_its_cache_is_on_disk(tmp_path: Path) -> None:
    command = SweepCommand(
        workload={"name": "toys.compiled:Compiled"},
        measure=MeasureConfig(rounds=3, iterations=5, warmup_max=5, counting_iterations=1),
        sweep=SweepConfig(
            name="cached", designs=[DesignConfig("one_at_a_time", levels={"compile_cache": ["shared"]})]
        ),
        runs=str(tmp_path),
    )
    folder, manifest = prepared(command, Device(compiler=True))
    run = PackRun(folder, manifest, manifest.packs[0])
    compiled = {arm.levels["compile_cache"]: arm for arm in manifest.arms if arm.levels["compile"] != "off"}
    cold, shared = compiled["cold"], compiled["shared"]
    run.support(shared, Kind.COUNTING)
    counted = run.progress.other[shared.id, Kind.COUNTING].record.counters
    assert counted["compile_s"] > 0 and counted["cache_hits"] == 0
    timed = [run.again(arm, Kind.TIMING).record for arm in (cold, shared)]
    assert [bool(record.counters["cache_hits"]) for record in timed] == [False, True]
    learned = [file for file in (folder.cache_dir / "compiler").rglob("*") if file.is_file()]
    assert learned, "timed trials come from a process that has compiled"
