"""Simulated machines that drift, spike and differ between processes, and sweeps measured on them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import planned_sweeps

from perfsweep.pipelines.analysis.effect_result import Decisions, decide
from perfsweep.pipelines.statistics.estimates import Estimate
from perfsweep.pipelines.statistics.log_ratios import Cell, Rounds
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import PLACEBO, Effect, Manifest
from perfsweep.pipelines.store.stop_rule import StopRule, apart


@dataclass(frozen=True)
class Machine:
    """What disturbs the times of a shared machine; all standard deviations are of log times.

    Attributes
    ----------
    node : between the nodes that sweeps land on
    drift : over the length of a sweep, up or down
    noise, correlation : of one iteration, and of its neighbours (first-order autoregressive)
    spikes : share of iterations that take 1.5 to 4 times as long
    process : between the servers, or else the processes, that run the same arm
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
        servers: int = 0,
        loud: Mapping[int, float] = MappingProxyType({}),
        moved: Mapping[int, float] = MappingProxyType({}),
    ) -> np.ndarray:
        """[sweeps, arms, rounds] times of interleaved arms in random order, the first of which is the base.

        Processes are fresh in every round, or come from as many `servers` as asked for. The trials of `loud`
        arms scatter by so many times the noise of one iteration, what servers add to `moved` arms by so many
        times `process`.
        """
        arms = len(effects) + 1
        order = rng.random((sweeps, rounds, arms)).argsort(axis=2)
        turns = self.turns(rng, sweeps, rounds * arms, iterations).reshape(sweeps, rounds, arms)
        times = np.take_along_axis(turns, order, axis=2).transpose(0, 2, 1)
        for arm, factor in loud.items():  # the turn has a part of it already
            own = self.noise * math.sqrt(factor**2 - 1)
            times[:, arm] *= np.exp(rng.normal(0, own, (sweeps, rounds)))
        process = rng.normal(0, self.process, (sweeps, arms, servers or rounds))
        for arm, factor in moved.items():
            process[:, arm] *= factor
        true = np.array([0.0, *effects])[None, :, None]
        return times * np.exp(np.repeat(process, rounds // process.shape[2], axis=2) + true)


SHARED = Machine()
TRIALS = Machine(node=0.0, noise=0.01, correlation=0.0, spikes=0.0)
"""Whole trials instead of iterations: `iterations=1`, and what is said of one is said of the other."""


def addressed(
    rng: np.random.Generator, sweeps: int, effects: Sequence[float], rounds: int, servers: int
) -> np.ndarray:
    """[sweeps, arms, rounds] times of a workload whose speed depends on address bits; trials scatter by 1 %.

    A server draws where its heap begins, an arm shifts it by what it allocates, and a child by a little. Each
    of three bits costs 1 %, and a buffer at the start of a page, as two that share cache sets would, 4 %.
    """
    arms = len(effects) + 1
    heap = rng.integers(0, 2**20, (sweeps, 1, servers)) + rng.integers(0, 2**20, (sweeps, arms, 1))
    address = heap + rng.integers(0, 2**8, (sweeps, arms, servers))
    bits = sum((address >> bit) & 1 for bit in (6, 7, 8))
    layout = 0.01 * bits + 0.04 * (address % 64 < 4)
    trials = rng.normal(0, 0.01, (sweeps, arms, rounds)) + np.array([0.0, *effects])[None, :, None]
    return np.exp(np.repeat(layout, rounds // servers, axis=2) + trials)


def rounds_of(times: np.ndarray, servers: int = 0) -> Rounds:
    """Times [arms, rounds] as the table that a sweep is judged by; nan where a trial is missing."""
    each = times.shape[1] // servers if servers else 1
    return Rounds(
        (
            Cell("p000", number, number // each if servers else None, str(arm), float(value))
            for arm, row in enumerate(times)
            for number, value in enumerate(row)
            if not math.isnan(value)
        ),
        "time",
    )


def effects_of(arms: int) -> list[Effect]:
    """Every arm against the first."""
    return [against(arm, 0) for arm in range(1, arms)]


def against(arm: int, base: int) -> Effect:
    """One arm against another."""
    level = str(arm)
    return Effect(id=level, design="one_at_a_time", toggle="t", level=level, pairs=((level, str(base)),))


def decided(times: np.ndarray, servers: int = 0, margin: float = 0.01, placebos: int = 0) -> Decisions:
    """A sweep of times [arms, rounds], every arm against the first, judged by the shipped code.

    The last `placebos` arms are controls: how far they lie from the first is the least that is called.
    """
    effects = effects_of(len(times))
    controls = [one.model_copy(update={"design": PLACEBO}) for one in effects[len(effects) - placebos :]]
    effects = [*effects[: len(effects) - placebos], *controls]
    return decide(rounds_of(times, servers), effects, {}, math.log1p(margin))


def hits(sweeps: Iterable[np.ndarray], truths: Sequence[float], servers: int = 0) -> np.ndarray:
    """[sweeps, effects] whether the plain interval holds the truth."""
    return np.array([held_by(decided(times, servers), truths) for times in sweeps])


def hits_of_pairs(sweeps: np.ndarray, truths: Sequence[float], servers: int = 0) -> np.ndarray:
    """[sweeps, arms, arms] whether the plain interval of each arm against each other one holds the truth.

    Sweeps of seven arms, by which a mean varies as by 3.5 to 4 independent intervals with one base, vary as
    by nine so, and as by 4.5 with two servers; a noisy arm's own as by two. A sweep takes a third longer.
    Nothing is told of an arm against itself: nan.
    """
    true = [0.0, *truths]
    held = np.full((len(sweeps), len(true), len(true)), math.nan)
    for found, times in zip(held, sweeps, strict=True):
        table = rounds_of(times, servers)
        for arm, base in itertools.combinations(range(len(true)), 2):
            estimate = table.estimate(against(arm, base))
            found[arm, base] = found[base, arm] = _holds(estimate, true[arm] - true[base])
    return held


def paired(log_ratios: Sequence[float]) -> Estimate:
    """An arm against its base alone, from one log ratio a round."""
    table = rounds_of(np.exp(np.array([np.zeros(len(log_ratios)), log_ratios])))
    return table.estimate(effects_of(2)[0])


def generations(
    rng: np.random.Generator,
    effects: Sequence[float],
    number: int,
    pair_sd: float = 0.021,
    loud: Mapping[int, float] = MappingProxyType({}),
) -> np.ndarray:
    """[arms, generations] times of arms with processes of their own in each, the first of which is the base.

    Pairs scatter by `pair_sd` with the tails of Student's t with five degrees of freedom, `loud` arms by so
    many times the scatter of the others.
    """
    noise = rng.standard_t(5, (len(effects) + 1, number)) * math.sqrt(3 / 5) * pair_sd / math.sqrt(2)
    for arm, factor in loud.items():
        noise[arm] *= factor
    return np.exp(noise + np.array([0.0, *effects])[:, None])


@dataclass(frozen=True)
class Stopped:
    """A sweep whose arms have stopped, as it is judged, and the rounds of each arm."""

    decisions: Decisions
    rounds: tuple[int, ...]


def stopping_sweep(arms: int, rounds: int, **measure: Any) -> Manifest:
    """The plan of arms "0", "1", ... against the first, one pack of at most so many rounds."""
    return planned_sweeps.manifest(
        *(planned_sweeps.arm(str(arm)) for arm in range(arms)),
        effects=tuple(effects_of(arms)),
        packs=(planned_sweeps.pack(*map(str, range(arms)), rounds=rounds),),
        sweep={"references": {"base": "0"}, "measure": {"repeats": 0, "rounds_max": rounds, **measure}},
    )


def measured_until(times: np.ndarray, precision: float, margin: float = 0.01) -> Stopped:
    """Measure a sweep of times [arms, rounds] as long as the stop rule asks for more, and judge it."""
    manifest = stopping_sweep(*times.shape, precision=precision, margin=margin)
    pack, progress = manifest.packs[0], Progress(rule=StopRule(manifest))
    while todo := progress.unfinished_rounds(pack):
        for arm in progress.measured(pack, todo[0]):
            own = {"round": todo[0], "units": 1.0, "region_ns": times[int(arm), todo[0]] * 1e9}
            progress.add(StoredTrial(Path(), planned_sweeps.record(arm, **own)))
    trials = [one.record for one in progress.every]
    cells = (Cell(one.pack, one.round or 0, None, one.arm, one.ns_per_unit) for one in trials)
    table = Rounds(cells, "time", apart(manifest))
    rounds = tuple(len(progress.timed[arm.id]) for arm in manifest.arms)
    return Stopped(decide(table, manifest.effects, {}, math.log1p(margin)), rounds)


def held_by(decisions: Decisions, truths: Sequence[float]) -> list[bool]:
    """Whether the plain interval of each effect holds the truth."""
    return [_holds(one, truth) for one, truth in zip(decisions.estimates.values(), truths, strict=True)]


def _holds(estimate: Estimate, truth: float) -> bool:
    return estimate.interval is not None and estimate.interval.low <= truth <= estimate.interval.high


CLAIMS = (Verdict.FASTER, Verdict.SLOWER)


def claims_falsely(decisions: Decisions, truths: Sequence[float]) -> bool:
    """Whether any arm is called that is equal, or that differs the other way."""
    right = [{-1.0: Verdict.FASTER, 1.0: Verdict.SLOWER}.get(float(np.sign(truth))) for truth in truths]
    verdicts = [one.verdict for one in decisions.verdicts.values()]
    return any(one in CLAIMS and one is not true for one, true in zip(verdicts, right, strict=True))
