"""What `perfsweep run` says of its one trial."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from toys.spinner import Spinner

from perfsweep.pipelines.commands import run as module
from perfsweep.pipelines.commands.run import _parts, _show_trial, _trial_lines
from perfsweep.pipelines.config import composition
from perfsweep.pipelines.report.terminal_table import print_table
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import Failure, Kind, Outcome, TrialRecord, write_iterations

RECORD = TrialRecord(
    arm="a" * 16, kind=Kind.TIMING, pack="p000", round=0, attempt=0, outcome=Outcome.OK, code="", method="m",
    units=70.0, iterations=7, region_ns=10**9, warmup_iterations=1, warmup_s=0.25, setup_s=1.5,
)  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "14.3 ms per unit: 7 iterations, 70 units"),
        ({"compile_s": 1.25, "peak_bytes": 3 * 10**6}, "compiling 1.2 s, peak memory 3 MB"),
        ({"mfu": 0.4567}, "model FLOPs: 45.67% of the device's peak"),
        ({"settled": False}, "not settled: warm-up reached measure.warmup_max"),
        ({"settled": False, "alarm": "it drifts"}, "not settled: it drifts"),
        ({"run_delay_ns": 5 * 10**7}, "others had its cores for 5.0% of the time"),
        ({"run_delay_ns": 0}, "others had its cores for 0.0% of the time"),
        ({"disturbed": ("load 9", "a swap")}, "disturbed: load 9"),
    ],
)
def test_what_is_known_of_a_trial_has_a_line(fields: dict, said: str) -> None:
    lines = _trial_lines(replace(RECORD, **fields), Path("runs/x"), "steps")
    assert said in lines and lines[-1] == "records: runs/x"
    extra = {"mfu", "settled", "run_delay_ns"} & fields.keys()
    assert len(lines) == 4 + len(extra) + len(fields.get("disturbed", ()))


KEPT: Any = SimpleNamespace(
    arms=[SimpleNamespace(label="naive")],
    sweep=SimpleNamespace(
        workload="toys",
        keep=SimpleNamespace(folder="kept/here"),
        declared=SimpleNamespace(unit="row", shape="steps"),
    ),
)


@pytest.mark.parametrize(
    ("failure", "lines"),
    [
        (Failure(type="E", message="no [batch]"), ["naive: failed: no [batch]"]),
        (Failure(type="E", message="one\ntwo", where="train.py:3"), ["naive: failed: E: one", "train.py:3"]),
    ],
)
def test_a_failure_is_told_with_its_line_and_its_log(failure: Failure, lines: list[str]) -> None:
    out = StringIO()
    console = Console(file=out, width=100, markup=False)
    trial = StoredTrial(Path("here"), replace(RECORD, outcome=Outcome.FAILED, failure=failure))
    assert _show_trial(console, KEPT, trial) == 1
    assert out.getvalue().splitlines() == [*lines, "log: here/log.txt"]


def test_each_part_of_an_iteration_has_its_share() -> None:
    arrays = {
        "wall_ns": np.array([100, 100, 100, 100]),
        "host_forward": np.array([50, 50, 50, 50]),
        "host_evaluation": np.array([0, 0, 0, 40]),
        "host_never": np.zeros(4),
    }
    out = StringIO()
    print_table(Console(file=out, width=100), _parts("toys", arrays))
    assert "\n   never " in out.getvalue(), "names begin below each other"
    rows = [line.split() for line in out.getvalue().splitlines()]
    assert ["iteration", "4", "of", "4", "100", "ns", "100", "ns", "100%"] in rows
    assert ["forward", "4", "of", "4", "50", "ns", "50", "ns", "50%"] in rows
    assert ["evaluation", "1", "of", "4", "40", "ns", "40", "ns", "10%"] in rows
    assert ["never", "0", "of", "4", "0%"] in rows


def test_results_are_kept_by_a_second_trial_unless_the_first_one_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failures: list[Failure | None] = []
    ran: list[str] = []

    class Pack:
        def __init__(self, folder: Any, manifest: Any, pack: Any) -> None:
            assert (folder.path / "manifest.jsonl").exists() and len(pack.arms) == 1
            assert manifest.sweep.measure.iterations == 9 and manifest.arms[0].levels["work"] == "single"

        def single(self) -> StoredTrial:
            return self.again(None, Kind.TIMING)

        def again(self, arm: Any, kind: Kind) -> StoredTrial:
            ran.append(kind.value)
            write_iterations(tmp_path, {"wall_ns": np.array([10, 30])})
            return StoredTrial(tmp_path, replace(RECORD, kind=kind, failure=failures[0]))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "PackRun", Pack)
    monkeypatch.setattr(
        module.launch, "prepare", lambda folder, manifest, text: folder.write_manifest(manifest)
    )
    monkeypatch.setattr(Spinner, "keep", lambda self, folder: None)
    words = ["workload=toys.spinner:Spinner", "measure.iterations=9", "toggles.work=single"]
    cfg = composition.compose("run", words)
    for keep, failure, kinds in (
        (None, None, ["timing"]),
        ("kept", None, ["timing", "result"]),
        ("kept", Failure(type="E", message="no"), ["timing"]),
    ):
        cfg.keep, cfg.runs, failures[:], ran[:] = keep, f"runs{len(kinds)}", [failure], []
        assert module.run(cfg) == int(failure is not None)
        assert ran == kinds
        assert ("kept in" in capsys.readouterr().out) is ("result" in kinds)
