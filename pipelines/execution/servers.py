"""The draws of a pack: what its trials are forked from, or start with by exec, renewed every few rounds.

An import takes longer than a round of short regions, so rounds do not wait for it: the next server imports on
another core while arms are timed, and the present one serves until it is ready.
"""

from __future__ import annotations

import importlib
import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from perfsweep.pipelines.execution.forks import START_S, Forks, ForkServer
from perfsweep.pipelines.execution.spawn import Child, Elsewhere, Exec, ServerLost, Starter, wait
from perfsweep.pipelines.store.records import Pack, Sweep
from perfsweep.pipelines.trial import layout
from perfsweep.workloads import registry
from perfsweep.workloads.snapshot import VARIABLE

SHARING = 3
"""How many servers share the planned rounds, however short these are, unless `measure.servers` is less."""


class Servers:
    """Starts the trials of one attempt at a pack, from one fork server at a time; `env` are variables of all.

    `elsewhere` starts ranks on other nodes.

    The first server begins at once and hashes strings the same in every sweep: counting and evidence trials
    come from it, before the rounds. Each later one is a fresh draw. It imports during the rounds of the one
    before, where these leave a core, and takes over when that has served its rounds and it is ready itself.
    The first two end after a third and two thirds of the planned rounds at the latest, so that three share.
    Without a core that is left, servers import between two rounds. Trials by exec are draws of their own.
    Trials of versions of the code come from branches of the draw's server, one for each. Where interpreters
    start with different variables, a draw is a server for each of them.

    Attributes
    ----------
    starter : what starts trials now, but for those of `starter_of`
    seed : of the present draw, which no other draw of this sweep or of another one shares
    """

    def __init__(
        self,
        sweep: Sweep,
        pack: Pack,
        env: Mapping[str, str] = MappingProxyType({}),
        elsewhere: Elsewhere | None = None,
        different: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self._env, self._elsewhere = env, elsewhere
        self._starts = _by_start({_key(variables): variables for variables in different} or {_key({}): {}})
        self._sweep, self._pack = sweep, pack
        # From no name or seed: a second sweep of the same name must be a second draw. Trials record theirs.
        self._drawn = secrets.randbits(32)
        self._module = registry.module_of(sweep.workload)
        self._lasts = 1 if pack.start == "exec" else sweep.measure.rounds_per_server
        self._draws = self._served = self._begun = 0
        self._ahead: ForkServer | None = None
        self._shared = ""
        self._cache_dir: Path | None = None  # of the sweep, once an arm compiles
        self._learning_ahead: Forks | None = None  # the branch of the next server
        self._renew()

    def share(self, file: str) -> None:
        """Fork from servers, from now on, that have imported what a file names; see `shared_imports`.

        The first server goes on as a branch of itself, which hashes strings and draws addresses as it does.
        """
        if not file or self._early is None:
            return
        self.complete()
        branch = self._early.branch(shared=file)
        with suppress(ServerLost):  # it may not fork after these imports, as the log says
            wait([branch.call(importlib.invalidate_caches)], START_S)
            self._shared, self._early = file, None
            self._start_from(branch)

    def starter_of(self, cache_dir: Path | None) -> Starter:
        """What starts trials of an arm now: of one that compiles, a branch that has compiled something.

        `cache_dir` is where the sweep keeps compiled code; None for arms that do not compile.
        """
        if cache_dir is None or self._forks is None:
            return self.starter
        self.learn(cache_dir)
        if self._compiling is None:
            self._compiling = self.starter
            if self._learning:
                with suppress(ServerLost):  # it may not fork afterwards, as the log says
                    wait([self._learning.call(importlib.invalidate_caches)], START_S)
                    self._compiling = self._learning
        return self._compiling

    def learn(self, cache_dir: Path) -> None:
        """Begin the branch of an arm that compiles, which takes seconds; see `starter_of`."""
        self._cache_dir = cache_dir
        if self._forks is not None and self._learning is None:
            self.complete()
            self._learning = self._forks.branch(compiles=str(cache_dir))

    def begin_round(self) -> None:
        """Renew the draw where the present one has served its rounds, and the next is ready or is needed."""
        # Two servers that differ leave one degree of freedom, and an interval five times as wide as that of
        # many rounds. Where no core was left for the next one to import ahead, it begins now.
        measure, draws = self._sweep.measure, self._draws + 1
        sharing = min(SHARING, measure.servers)
        must = draws < sharing and self._begun >= draws * measure.rounds // sharing
        if self._served >= self._lasts and (must or self._ahead is None or self._ahead.imported()):
            self._draws, self._served = self._draws + 1, 0
            self._renew()
        self.complete()
        if self._learning and self._cache_dir:
            self.starter_of(self._cache_dir)  # nothing compiles while arms are timed
        self._served, self._begun = self._served + 1, self._begun + 1

    def import_ahead(self, cores: Collection[int]) -> None:
        """Let the next server import, on these cores alone; without effect where no other is to come."""
        measure = self._sweep.measure
        ends = self._begun + max(0, self._lasts - self._served)  # the round that the present one serves to
        simple = self._pack.start == "fork" and len(self._starts) == 1
        if self._ahead is None and simple and (measure.adaptive or ends < measure.rounds):
            self._ahead = self._server(self._draws + 1)
        if self._ahead:
            self._ahead.work_on(cores)
            if self._cache_dir and self._learning_ahead is None and self._ahead.imported():
                with suppress(ServerLost):  # as the next round will find
                    self._learning_ahead = self._ahead.branch(compiles=str(self._cache_dir))

    def rest_ahead(self) -> None:
        """Stop the next server until it is to go on: an arm needs all cores."""
        if self._ahead:
            self._ahead.rest()

    def ahead_s(self) -> float:
        """CPU time, in seconds, that the next server has taken so far."""
        return self._ahead.own_s() if self._ahead else 0.0

    def complete(self) -> None:
        """Have everything imported that trials need, as no server may import while another is timed."""
        if self._early is not None:
            self._early.complete()

    def _seed(self, draw: int) -> int:
        return layout.draw(self._drawn, draw)

    def _variables(self, draw: int) -> dict[str, str]:
        seed = self._seed(draw) if draw else None
        return {**self._env, **layout.environment(self._sweep.measure.allocator, seed)}

    def _server(self, draw: int) -> ForkServer:
        ((at_start, _),) = self._starts
        variables = {**self._variables(draw), **at_start}
        if self._has_versions:
            return ForkServer([], variables, shared=self._shared)
        return ForkServer([self._module], variables, early=not draw, shared=self._shared)

    @property
    def _has_versions(self) -> bool:
        return any(key for _, versions in self._starts for key in versions)

    def _start_from(self, server: Forks) -> None:
        """Start trials from a server, those of versions of the code from branches of it."""
        if self._has_versions:
            self.starter = _Chosen(self._branches(server, self._starts[0][1]))
        else:
            self.starter = self._forks = server

    def _renew(self) -> None:
        self.seed = self._seed(self._draws)
        self._early: ForkServer | None = None
        self._forks: Forks | None = None  # where all trials of the draw are forked, and from one server
        self._compiling: Starter | None = None
        self._learning, self._learning_ahead = self._learning_ahead, None
        ahead, self._ahead = self._ahead, None
        self.starter: Starter
        if self._pack.start == "exec":
            self.starter = Exec(env=self._variables(self._draws), elsewhere=self._elsewhere)
        elif len(self._starts) > 1:
            self.starter = self._chosen(self._variables(self._draws))
        else:
            if ahead:
                ahead.work_on(os.sched_getaffinity(0))
            self._early = ahead or self._server(self._draws)
            self._start_from(self._early)

    def _chosen(self, env: Mapping[str, str]) -> Starter:
        servers: dict[_Key, Forks] = {}
        for at_start, versions in self._starts:
            if len(versions) == 1:
                own = ForkServer([self._module], {**env, **next(iter(versions.values()))})
                servers |= dict.fromkeys(versions, own)
            else:
                servers |= self._branches(ForkServer([], {**env, **at_start}), versions)
        return _Chosen(servers)

    def _branches(self, server: Forks, versions: Mapping[_Key, Mapping[str, str]]) -> dict[_Key, Forks]:
        return {key: server.branch([self._module], own) for key, own in versions.items()}


_Key = frozenset[tuple[str, str]]


def _key(variables: Mapping[str, str]) -> _Key:
    return frozenset(variables.items())


def _by_start(
    different: Mapping[_Key, Mapping[str, str]],
) -> list[tuple[Mapping[str, str], dict[_Key, Mapping[str, str]]]]:
    """Variables that an interpreter must start with, and the trials' that share them."""
    groups: dict[_Key, dict[_Key, Mapping[str, str]]] = {}
    for key, variables in different.items():
        at_start = {name: text for name, text in variables.items() if name != VARIABLE}
        groups.setdefault(_key(at_start), {})[key] = variables
    return [(dict(at_start), versions) for at_start, versions in groups.items()]


class _Chosen:
    """Starts each trial from the server that has its variables."""

    def __init__(self, servers: Mapping[_Key, Forks]) -> None:
        self._servers = servers
        # What starts a trial waits for its own server only: none may be timed while others import.
        for server in servers.values():
            wait([server.call(importlib.invalidate_caches)], START_S)

    def start(self, spec_file: Path, world: int, env: Mapping[str, str], stay: bool = False) -> list[Child]:
        """Fork one trial."""
        return self._servers[_key(env)].start(spec_file, world, {}, stay)
