"""The draws of a pack: what its trials are forked from, or start with by exec, renewed every few rounds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pipelines.execution.resident import Starter
from pipelines.execution.spawn import Exec, ForkServer
from pipelines.store.records import Pack, Sweep
from pipelines.trial import layout
from workloads import registry


class Servers:
    """Starts the trials of one attempt at a pack, from one fork server at a time; `env` are variables of all.

    The first server begins at once and hashes strings the same in every sweep: counting and evidence trials
    come from it, before the rounds. Each later one is a fresh draw; it imports between two rounds, so that no
    trial is timed beside it. Trials by exec draw anew with every round.

    Attributes
    ----------
    starter : what starts trials now
    seed : of the present draw, which no other draw of the sweep shares
    """

    def __init__(
        self, sweep: Sweep, pack: Pack, attempt: int, env: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._env = env
        self._sweep, self._pack, self._attempt = sweep, pack, attempt
        fresh = sweep.measure.isolation == "fresh"
        self._lasts = 1 if pack.start == "exec" and fresh else sweep.measure.rounds_per_server
        self._draws = self._served = 0
        self._renew()

    def begin_round(self) -> None:
        """Renew the draw where the present one has served its rounds."""
        if self._served == self._lasts:
            self._draws, self._served = self._draws + 1, 0
            self._renew()
        self._served += 1

    def _renew(self) -> None:
        self.seed = layout.draw(self._sweep.name, self._pack.id, self._attempt, self._draws)
        drawn = layout.environment(self._sweep.measure.allocator, self.seed if self._draws else None)
        env = {**self._env, **drawn}
        self.starter: Starter = (
            Exec(env=env)
            if self._pack.start == "exec"
            else ForkServer([registry.module_of(self._sweep.workload)], env)
        )
