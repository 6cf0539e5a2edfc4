"""A sweep draws addresses and hash seeds anew in every round, and a fork server is one draw of several."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest
from measured import prepared

from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.execution import pack
from perfsweep.pipelines.execution.forks import ForkServer
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Kind, TrialRecord

Rounds = Mapping[int, TrialRecord]


@pytest.fixture
def measured(command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Rounds of each arm, and its evidence, of a sweep of two arms that run the same code."""
    monkeypatch.setattr("perfsweep.pipelines.execution.servers.ForkServer", ForkServer)

    def measure(**options: object) -> tuple[dict[str, dict[int, TrialRecord]], list[TrialRecord]]:
        folder, manifest = prepared(
            command(DesignConfig("one_at_a_time"), workload="toys.addresses:Addresses", measure=options)
        )
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


def test_a_server_that_nobody_has_used_is_not_waited_for(tmp_path: Path) -> None:
    """It would first import what takes as long as a test may take."""
    (tmp_path / "endless.py").write_text("import time\ntime.sleep(600)\n")
    server = ForkServer(
        ["endless"], {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    )
    process = server._process
    del server
    assert process.poll() == -signal.SIGKILL
