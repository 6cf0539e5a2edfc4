"""Packs that share a job: who goes together, what each gets, and how the job ends."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_nvml import FakeNvml

from perfsweep.pipelines.execution import shared_job
from perfsweep.pipelines.execution.pack import CANNOT_WRITE
from perfsweep.pipelines.execution.shared_job import SharedJob, combined, jobs_for
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.pipelines.trial.machine.gpus import Gpu

ALIKE = {f"p{number:03d}": {} for number in range(5)}


@pytest.mark.parametrize(
    ("resources", "alive", "jobs"),
    [
        (ALIKE, [], [("p000", "p001"), ("p002", "p003"), ("p004",)]),
        (ALIKE, ["p001+p004", "p900"], [("p000", "p002"), ("p001", "p004"), ("p003",)]),
        ({"p000": {}, "p001": {"memory": "9G"}, "p002": {}}, [], [("p000", "p002"), ("p001",)]),
    ],
    ids=["pairs", "living pair", "other memory"],
)
def test_packs_go_together_where_they_ask_for_the_same_and_stay_where_they_live(
    resources: dict[str, dict[str, object]], alive: list[str], jobs: list[tuple[str, ...]]
) -> None:
    assert jobs_for(resources, 2, alive) == jobs


def test_packs_with_gpus_run_on_the_cores_of_their_sockets(
    tmp_path: Path, ran: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    low, high = {"uuid": "GPU-a", "cores": [0b0011, 0]}, {"uuid": "GPU-b", "cores": [0b1100, 0]}
    kept: list[list[int]] = []
    monkeypatch.setattr(shared_job.os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    monkeypatch.setattr(shared_job.os, "sched_setaffinity", lambda pid, cores: kept.append([*cores]))
    monkeypatch.setattr(shared_job.os, "cpu_count", lambda: 96)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(low, high))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    assert ran("p000", "p003") == 0
    assert kept == [[2, 3], [0, 1]]
    del high["cores"]
    ran("p000", "p003")
    assert kept[2:] == [[2, 3], [0, 1]], "one GPU does not say: the other one's pack keeps its own"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ran("p000", "p003")
    assert kept[4:] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("statuses", "status"), [([0, 75], 75), ([79, 75, 1], 75), ([0, 1, 137], 137), ([1, 79], 79)]
)
def test_a_job_ends_as_the_pack_that_needs_most(statuses: list[int], status: int) -> None:
    assert combined(statuses) == status


PACK = """#!/bin/sh
echo "$@" on "[$CUDA_VISIBLE_DEVICES]"
seq 5
trap 'echo told; exit 5' TERM
case $5 in
    p000) exit 0;;
    p005) rm "$4"/packs/p005/log.txt; exit 3;;
    p001) exit 3;;
    p002) kill -9 $$;;
    p004) kill -TERM $PPID; while :; do sleep 0.01; done;;
esac
"""
"""What stands for the interpreter: it says what it was started with, and ends as its pack does."""


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs a shared job of packs; each of its processes is the script above."""
    program = tmp_path / "python"
    program.write_text(PACK)
    program.chmod(0o755)
    monkeypatch.setattr(shared_job.sys, "executable", str(program))
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)}
    yield lambda *packs, retry=(): SharedJob(SweepFolder(tmp_path / "sweep"), packs, retry).run()
    for number, handler in kept.items():
        signal.signal(number, handler)


def log(tmp_path: Path, pack: str) -> list[str]:
    return (SweepFolder(tmp_path / "sweep").pack_dir(pack) / "log.txt").read_text().splitlines()


def test_each_pack_runs_with_its_share_of_gpus_and_its_own_log(
    tmp_path: Path, ran: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert ran("p000", "p003", retry=("oom",)) == 0
    words = f"-m perfsweep.pipelines.own_code perfsweep.pipelines.execution.pack {tmp_path / 'sweep'}"
    assert log(tmp_path, "p000")[0] == f"{words} p000 oom on [4,5]"
    assert log(tmp_path, "p003")[0] == f"{words} p003 oom on [6,7]"
    ran("p000", "p003")
    assert len(log(tmp_path, "p000")) == 12, "a later start goes on in the same log"


@pytest.mark.parametrize(
    ("variable", "on_node", "seen"),
    [(None, 4, ["[g0,g1]", "[g2,g3]"]), ("5", 4, ["[]", "[]"])],
    ids=["variable unset", "fewer GPUs than packs"],
)
def test_no_pack_sees_the_gpus_of_another_whatever_slurm_has_set(
    tmp_path: Path,
    ran: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    variable: str | None,
    on_node: int,
    seen: list[str],
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    found = tuple(Gpu("H100", f"g{number}", 0, None) for number in range(on_node))
    monkeypatch.setattr(shared_job.gpus, "visible", lambda: found)
    assert ran("p000", "p003") == 0
    assert [log(tmp_path, pack)[0].split(" on ")[1] for pack in ("p000", "p003")] == seen


def test_packs_that_ended_badly_are_told_with_the_end_of_their_logs(
    tmp_path: Path,
    ran: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert ran("p000", "p001", "p002") == 137
    assert capsys.readouterr().out.splitlines() == [
        "p001 ended with status 3; the end of its log:",
        *"345",
        "p002 ended with status 137; the end of its log:",
        *"345",
    ]


def test_a_pack_whose_folder_is_closed_is_named_and_the_others_run(
    tmp_path: Path, ran: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    closed = SweepFolder(tmp_path / "sweep").pack_dir("p001")
    closed.parent.mkdir(parents=True)
    closed.write_text("no folder")
    assert ran("p001", "p000") == CANNOT_WRITE
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{closed}") and line.endswith("; fix this and start the sweep again")
    assert len(log(tmp_path, "p000")) == 6


def test_a_signal_to_the_job_reaches_its_packs(tmp_path: Path, ran: Callable[..., int]) -> None:
    assert ran("p004") == 5
    assert log(tmp_path, "p004")[-1] == "told"
