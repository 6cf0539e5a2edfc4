"""A sweep draws addresses and hash seeds anew in every round, and a fork server is one draw of several."""

from __future__ import annotations

import importlib
import os
import signal
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.execution import launch, pack
from perfsweep.pipelines.execution.forks import ForkServer
from perfsweep.pipelines.execution.spawn import wait
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Kind, SweepFolder, TrialRecord
from perfsweep.workloads.api import Device

Rounds = Mapping[int, TrialRecord]


@pytest.fixture
def measured(command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Rounds of each arm, and its evidence, of a sweep of two arms that run the same code."""
    monkeypatch.setattr("perfsweep.pipelines.execution.servers.ForkServer", ForkServer)

    def measure(**options: object) -> tuple[dict[str, dict[int, TrialRecord]], list[TrialRecord]]:
        manifest = plan.make_plan(
            command(DesignConfig("one_at_a_time"), workload="toys.addresses:Addresses", measure=options),
            Device(),
        )
        folder = SweepFolder(tmp_path / "runs" / manifest.sweep.name)
        launch.prepare(folder, manifest, "")
        assert pack.main([str(folder.path), manifest.packs[0].id]) == 0
        progress = read_progress(folder, manifest)
        rounds: dict[str, dict[int, TrialRecord]] = defaultdict(dict)
        for (_, number), attempts in progress.timing.items():
            for arm, trial in attempts[max(attempts)].items():
                rounds[arm][number] = trial.record
        evidence = [one.record for (_, kind), one in progress.other.items() if kind is Kind.EVIDENCE]
        return rounds, evidence

    return measure


def addresses(record: TrialRecord) -> tuple[float, ...]:
    return tuple(value for name, value in record.numbers.items() if name.startswith("address"))


@pytest.mark.slow
def test_every_trial_has_its_own_addresses_and_every_server_its_own_hash_seed(measured) -> None:
    arms, evidence = measured(rounds=4, servers=2)
    for rounds in arms.values():
        assert len({addresses(record) for record in rounds.values()}) == 4
        # relative to one another as well: a shift of everything by the same amount would move no two apart
        assert len({tuple(a - addresses(r)[0] for a in addresses(r)) for r in rounds.values()}) >= 3
    for number in range(4):
        first, second = (rounds[number] for rounds in arms.values())
        assert addresses(first) != addresses(second)
        assert first.server == second.server
        assert first.numbers["hash"] == second.numbers["hash"]
    servers = [record.server for record in next(iter(arms.values())).values()]
    assert servers[0] == servers[1] != servers[2] == servers[3]
    hashes = [record.numbers["hash"] for record in next(iter(arms.values())).values()]
    assert len(set(hashes)) == 2
    assert {record.numbers["hash"] for record in evidence} == {hashes[0]}, (
        "evidence is the same in every sweep"
    )
    every = [record for rounds in arms.values() for record in rounds.values()]
    assert {record.numbers["found_library"] for record in [*every, *evidence]} == {1.0}, (
        "what a set-up imports is imported once by its server"
    )


@pytest.mark.slow
def test_courses_run_at_the_same_time_where_there_are_cores(command, tmp_path: Path) -> None:
    manifest = plan.make_plan(
        command(
            DesignConfig("one_at_a_time"),
            workload="toys.addresses:Addresses",
            measure={"rounds": 4, "timed_parity": True},
        ),
        Device(),
    )
    folder = SweepFolder(tmp_path / "runs" / manifest.sweep.name)
    launch.prepare(folder, manifest, "")
    assert pack.main([str(folder.path), manifest.packs[0].id]) == 0
    courses = [one for many in read_progress(folder, manifest).courses.values() for one in many]
    first, second = sorted(courses, key=lambda record: record.started)
    assert (second.started < first.ended) is (len(os.sched_getaffinity(0)) > 1)


def test_a_server_that_nobody_has_used_is_not_waited_for(tmp_path: Path) -> None:
    """It would first import what takes as long as a test may take."""
    (tmp_path / "endless.py").write_text("import time\ntime.sleep(600)\n")
    server = ForkServer(
        ["endless"], {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    )
    process = server._process
    del server
    assert process.poll() == -signal.SIGKILL


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.slow
def test_a_server_and_its_branches_rest_and_keep_to_cores_together_and_one_that_rests_can_end() -> None:
    server = ForkServer([])
    branch = server.branch()
    pids = [server._process.pid, branch._process.pid]
    wait([branch.call(importlib.invalidate_caches)], 60.0)
    before_s = server.own_s()
    core = min(os.sched_getaffinity(0))
    server.rest()
    while any(state(pid) != "T" for pid in pids):
        time.sleep(0.01)
    server.work_on([core])
    assert [os.sched_getaffinity(pid) for pid in pids] == [{core}, {core}]
    wait([branch.call(importlib.invalidate_caches)], 60.0)
    assert server.own_s() >= before_s > 0
    server.rest()
    process = server._process
    del server, branch
    assert process.poll() is not None
