"""Commands that only look at a sweep, judge or copy its records, need neither torch nor the workload."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from measured import compared, cost, simulated

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.store.records import SweepFolder

ABSENT = """
import sys
from importlib.machinery import ModuleSpec
from perfsweep.pipelines.cli import main

ABSENT = {"torch", "toys"}

class Absent:
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name.partition(".")[0] in ABSENT else None
    def create_module(self, spec):
        raise ImportError(f"{spec.name} is not installed here")
    def exec_module(self, module): ...

sys.meta_path.insert(0, Absent())
"""
"""A process on a machine that has neither torch nor the module that was measured."""
ANSWERED = "--- end of an answer"
EACH = f"""
from pathlib import Path
for words in map(str.split, sys.argv[1:]):
    try:
        main(words)
    except SystemExit as end:
        assert not end.code, words
    print(Path(words[-1], "report.html").exists())
    print({ANSWERED!r})
"""
"""Runs commands one after the other, and says after each whether the sweep has a report."""


@pytest.fixture
def measured(command) -> SweepFolder:
    levels = {"work": ["single"], "idle": ["on"], "half": ["on"]}
    design = DesignConfig("one_at_a_time", levels=levels)
    return simulated(command(design, measure={"rounds": 4}), cost, iterations=10)[0]


def test_the_status_of_a_sweep_is_told_without_what_judges_and_draws(measured: SweepFolder) -> None:
    without = "ABSENT |= {'scipy', 'matplotlib', 'hydra', 'jinja2', 'wandb'}; main(sys.argv[1:])"
    assert "rounds finished" in elsewhere("status", str(measured.path), does=without)


def elsewhere(*arguments: str, does: str = "main(sys.argv[1:])") -> str:
    code = ABSENT + does
    said = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=200
    )
    assert said.returncode == 0, said.stderr
    return said.stdout


@pytest.mark.slow
def test_a_sweep_that_was_moved_to_another_machine_reads_and_compares_there_as_here(
    measured: SweepFolder, tmp_path: Path
) -> None:
    laptop = SweepFolder(tmp_path / "laptop" / "copied")
    shutil.copytree(measured.path, laptop.path)
    compared(measured, measured.read_manifest())
    tables = ("effects", "arms")
    here = [pl.read_parquet(measured.tables_dir / f"{name}.parquet") for name in tables]
    shutil.rmtree(measured.path)
    asked = {
        "status": "rounds finished",
        "publish --offline": "rows in",
        "logs": "",
        "status --help": "Usage",
        f"dashboard --file {laptop.path}/dashboard.json": "",
        f"compare --store {laptop.path}/baseline.json": "reading a sweep imports no code",
    }
    said = elsewhere(*(f"{words} {laptop.path}" for words in asked), does=EACH)
    answers = said.split(f"{ANSWERED}\n")[:-1]
    assert [words for words, said in zip(asked, answers, strict=True) if asked[words] not in said] == []
    assert [said.endswith("True\n") for said in answers] == [words.startswith("compare") for words in asked]
    assert (laptop.path / "dashboard.json").stat().st_size
    there = [pl.read_parquet(laptop.tables_dir / f"{name}.parquet") for name in tables]
    assert here[0]["rulings"].str.contains("confirmed").any()
    assert here[0].drop("rulings").equals(there[0].drop("rulings"))
    assert here[1].equals(there[1])
