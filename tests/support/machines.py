"""Simulated machines that drift, spike and differ between processes, and sweeps measured on them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pipelines.analysis.decisions import Decisions, decide
from pipelines.statistics.log_ratios import Cell, Rounds
from pipelines.store.records import Effect


@dataclass(frozen=True)
class Machine:
    """What disturbs the times of a shared machine; all standard deviations are of log times.

    Attributes
    ----------
    node : between the nodes that sweeps land on
    drift : over the length of a sweep, up or down
    noise, correlation : of one iteration, and of its neighbours (first-order autoregressive)
    spikes : share of iterations that take 1.5 to 4 times as long
    process : between the processes that run the same arm
    """

    node: float = 0.06
    drift: float = 0.10
    noise: float = 0.05
    correlation: float = 0.5
    spikes: float = 0.02
    process: float = 0.0

    def turns(self, rng: np.random.Generator, sweeps: int, turns: int, iterations: int) -> np.ndarray:
        """[sweeps, turns] mean time of the iterations of each turn, one turn after the other."""
        length = turns * iterations
        shocks = rng.normal(0, self.noise * math.sqrt(1 - self.correlation**2), (length, sweeps))
        shocks[0] /= math.sqrt(1 - self.correlation**2)
        for i in range(1, length):
            shocks[i] += self.correlation * shocks[i - 1]
        slope = rng.normal(0, self.drift, sweeps)
        log_times = shocks + np.linspace(0, 1, length)[:, None] * slope + rng.normal(0, self.node, sweeps)
        times = np.exp(log_times)
        hit = rng.random((length, sweeps)) < self.spikes
        times[hit] *= rng.uniform(1.5, 4, hit.sum())
        return times.reshape(turns, iterations, sweeps).mean(axis=1).T

    def sweep(
        self,
        rng: np.random.Generator,
        sweeps: int,
        effects: list[float],
        rounds: int,
        iterations: int = 10,
        generations: int = 0,
    ) -> np.ndarray:
        """[sweeps, arms, rounds] times of interleaved arms in random order, the first of which is the base.

        Processes are fresh in every round, or as many `generations` of them as asked for.
        """
        arms = len(effects) + 1
        order = rng.random((sweeps, rounds, arms)).argsort(axis=2)
        turns = self.turns(rng, sweeps, rounds * arms, iterations).reshape(sweeps, rounds, arms)
        times = np.take_along_axis(turns, order, axis=2).transpose(0, 2, 1)
        process = rng.normal(0, self.process, (sweeps, arms, generations or rounds))
        true = np.array([0.0, *effects])[None, :, None]
        return times * np.exp(np.repeat(process, rounds // process.shape[2], axis=2) + true)


SHARED = Machine()
CALM = Machine(spikes=0.0)
PROCESSES = Machine(noise=0.03, spikes=0.0, process=0.01)


def rounds_of(times: np.ndarray, generations: int = 0) -> Rounds:
    """Times [arms, rounds] as the table that a sweep is judged by."""
    rounds = times.shape[1]
    each = rounds // generations if generations else 1
    return Rounds(
        (
            Cell("p000", number, number // each if generations else None, str(arm), float(value))
            for arm, row in enumerate(times)
            for number, value in enumerate(row)
        ),
        "time",
    )


def effects_of(arms: int) -> list[Effect]:
    """Every arm against the first."""
    return [
        Effect(id=str(arm), design="one_at_a_time", toggle="t", level=str(arm), pairs=((str(arm), "0"),))
        for arm in range(1, arms)
    ]


def decided(times: np.ndarray, generations: int = 0, margin: float = 0.01) -> Decisions:
    """A sweep of times [arms, rounds], every arm against the first, judged by the shipped code."""
    return decide(rounds_of(times, generations), effects_of(len(times)), {}, math.log1p(margin))
