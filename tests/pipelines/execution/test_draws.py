"""The draws of a pack: which server starts a trial, when it is renewed, and with which variables."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.config.types import MeasureConfig
from perfsweep.pipelines.execution import servers
from perfsweep.pipelines.execution.servers import Servers
from perfsweep.pipelines.execution.spawn import Exec
from perfsweep.workloads.snapshot import VARIABLE


class Server:
    """What a fork server was made with, and what it was asked for."""

    made: list[Server] = []

    def __init__(
        self,
        modules: Any,
        env: Any = None,
        early: bool = False,
        shared: str = "",
        parent: Server | None = None,
        compiles: str = "",
    ) -> None:
        self.modules, self.env, self.early, self.parent = [*modules], dict(env or {}), early, parent
        self.shared, self.compiles = shared, compiles
        self.completed, self.calls = 0, 0
        self.ready = self.rests = False
        self.cores: list[set[int]] = []
        self.started: list[tuple[Path, int, dict, bool]] = []
        self.made.append(self)

    def complete(self) -> None:
        self.completed += 1

    def work_on(self, cores: Any) -> None:
        self.cores.append(set(cores))
        self.rests = False

    def rest(self) -> None:
        self.rests = True

    def imported(self) -> bool:
        return self.ready

    def own_s(self) -> float:
        return 2.5

    def call(self, *words: Any) -> None:
        self.calls += 1

    def branch(
        self, modules: Any = (), variables: Any = None, shared: str = "", compiles: str = ""
    ) -> Server:
        return Server(modules, variables, shared=shared, parent=self, compiles=compiles)

    def start(self, spec_file: Path, world: int, env: Any, stay: bool = False) -> list:
        self.started.append((spec_file, world, dict(env), stay))
        return []


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Server]:
    monkeypatch.setattr(Server, "made", [])
    monkeypatch.setattr(servers, "ForkServer", Server)
    monkeypatch.setattr(servers, "wait", lambda children, timeout_s: None)
    return Server.made


def draws(
    start: str = "fork", adaptive: bool = False, rounds: int = 4, servers: int = 2, **options: Any
) -> Servers:
    precision = 0.01 if adaptive else None
    measure = MeasureConfig(rounds=rounds, servers=servers, allocator="system", precision=precision)
    sweep = SimpleNamespace(name="s", workload="toys.spinner:Spinner", measure=measure)
    return Servers(sweep, SimpleNamespace(id="p000", start=start), **options)  # type: ignore[arg-type]


def test_without_a_core_that_is_left_each_later_server_begins_after_the_rounds_of_the_one_before(
    made: list[Server],
) -> None:
    pack = draws(env={"A": "1"})
    seeds = []
    for _ in range(5):
        pack.begin_round()
        seeds.append(pack.seed)
    assert [server.early for server in made] == [True, False, False]
    assert seeds[0] == seeds[1] != seeds[2] == seeds[3] != seeds[4] != seeds[0]
    assert all(server.modules == ["toys.spinner"] and server.env["A"] == "1" for server in made)
    assert [server.completed for server in made] == [2, 2, 1], "nothing imports beside a timed trial"
    assert pack.starter is made[2]


def test_a_second_sweep_of_the_same_name_has_other_draws(made: list[Server]) -> None:
    pack, again = draws(), draws()
    seeds = set()
    for _ in range(3):
        pack.begin_round()
        again.begin_round()
        seeds |= {pack.seed, again.seed}
    assert len(seeds) == 4, "two servers of each, and none like another"


def test_the_next_server_imports_during_the_rounds_of_the_present_one_on_cores_that_are_left(
    made: list[Server],
) -> None:
    pack = draws()
    for _ in range(2):
        pack.begin_round()
        pack.import_ahead([7])
    first, ahead = made
    assert (ahead.cores, pack.ahead_s(), pack.starter) == ([{7}, {7}], 2.5, first)
    ahead.ready = True
    pack.begin_round()
    assert pack.starter is ahead and len(made) == 2 and pack.ahead_s() == 0.0
    assert ahead.cores[2:] == [os.sched_getaffinity(0)] and ahead.completed == 1
    assert ahead.env["PYTHONHASHSEED"] == str(pack.seed)


@pytest.mark.parametrize(
    ("most", "rounds", "used"),
    [(1, 6, [0] * 6), (2, 6, [0, 0, 0, 1, 1, 1]), (5, 6, [0, 0, 1, 1, 2, 2, 2, 2]), (5, 5, [0, 1, 1, 2, 2])],
)
def test_three_servers_share_the_rounds_though_the_next_still_imports_and_later_ones_are_not_waited_for(
    made: list[Server], most: int, rounds: int, used: list[int]
) -> None:
    pack, found = draws(rounds=rounds, servers=most), []
    for _ in used:
        pack.begin_round()
        pack.import_ahead([7])
        found.append(made.index(pack.starter))  # type: ignore[arg-type]
    assert found == used


def test_trials_that_compile_come_from_one_branch_of_each_draw_that_has_compiled(made: list[Server]) -> None:
    pack = draws()
    pack.share("imports.json")
    shared = made[-1]
    for _ in range(2):
        pack.begin_round()
        assert pack.starter_of(None) is shared
        compiling = pack.starter_of(Path("cache"))
        assert isinstance(compiling, Server) and compiling is made[-1] and len(made) == 3
        assert (compiling.parent, compiling.compiles, compiling.calls) == (shared, "cache", 1)
    pack.begin_round()
    pack.starter_of(Path("cache"))
    assert made[-1].parent is pack.starter is made[3]


def test_trials_by_exec_draw_again_with_every_round(made: list[Server]) -> None:
    pack = draws("exec")
    assert isinstance(pack.starter, Exec)
    seeds: dict[int, int] = {}
    found = []
    for _ in range(3):
        pack.begin_round()
        found.append(seeds.setdefault(pack.seed, len(seeds) + 1))
    assert (found, made) == ([1, 2, 3], [])


ONE, TWO = {VARIABLE: "one"}, {VARIABLE: "two"}
OTHER = {VARIABLE: "two", "PERFSWEEP_PYTHON": "/other/python"}


def test_versions_of_the_code_share_the_imports_of_one_server_and_another_interpreter_has_its_own(
    made: list[Server],
) -> None:
    pack = draws(env={"A": "1"}, different=[ONE, TWO, OTHER, ONE])
    shared, first, second, alone = made
    assert (shared.modules, first.parent, second.parent, alone.parent) == ([], shared, shared, None)
    assert (first.env, second.env) == (ONE, TWO)
    assert alone.env["A"] == "1" and alone.env["PERFSWEEP_PYTHON"] == "/other/python"
    assert all(server.modules == ["toys.spinner"] and server.calls == 1 for server in (first, second, alone))
    assert shared.calls == 0
    for index, env in enumerate((TWO, OTHER, ONE)):
        pack.starter.start(Path(str(index)), 1, env, True)
    assert [server.started for server in (first, second, alone)] == [
        [(Path("2"), 1, {}, True)],
        [(Path("0"), 1, {}, True)],
        [(Path("1"), 1, {}, True)],
    ]
