"""Options that the files of a sweep hold: how trials measure and train, what is profiled, where is published.

Each option is declared once, here; `perfsweep.pipelines.config.types` puts them into the commands. Imports
the standard library only, so that help answers at once.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from perfsweep.fields import default_of, option

MODES = ("offline", "online", "disabled")
"""Ways of publishing to W&B."""

COLUMNS: tuple[str, ...] = (
    "wall",
    "cpu",
    "energy",
    "cost",
    "job_cost",
    "p50",
    "p95",
    "p99",
    "stall",
    "target",
    "target_steps",
)
"""Quantities next to time that a report may show; `analysis.quantity_results` says what each is."""

MOST_ROUNDS = 100_000
"""Of a plan that lists the order of arms in each."""

MOST_WAIT_S = 1_000_000
"""Seconds, 11 days: the system cannot be asked to wait for twice as long."""

_STRICT = {"extra": "forbid", "revalidate_instances": "always", "allow_inf_nan": False}
"""Of pydantic: refuse unknown fields and what is no finite number, and give numbers the declared type,
wherever they came from."""


@dataclass(frozen=True)
class MeasureConfig:
    """How trials measure.

    An option is part of the *method*, which makes trials comparable, unless its declaration says
    ``method=False``.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT

    rounds: int = option(
        10,
        "Rounds, each of which measures every arm of a pack once: three are the fewest that decide anything;"
        " with precision or budget_s, these decide from six rounds on.",
        least=1,
        most=MOST_ROUNDS,
        method=False,
    )
    iterations: int | None = option(
        None,
        "Timed iterations of a step-shaped workload in each round, rounded up to its cadence; null: as many"
        " as `region_s` says.",
        least=1,
    )
    region_s: float = option(
        0.08,
        "Seconds of timed iterations in each round, at least one cadence of them: as many as the baseline's"
        " evidence does in that time, the same for all arms; more rounds help more than longer ones.",
        above=0,
    )
    turn_s: float = option(
        0.009,
        "Seconds that an arm works while the others of its round wait, at least one iteration: a slowdown of"
        " the machine that lasts longer slows all of them alike.",
        above=0,
    )
    jobs: int = option(1, "Timed jobs of a job-shaped workload, after one discarded job.", least=1)
    discard_s: float | None = option(
        None, "Seconds after which the discarded job is cut off; null: it runs whole.", above=0
    )
    warmup_max: int = option(
        400, "Most iterations of warm-up; it ends earlier where the times have settled.", least=5
    )
    evidence_iterations: int = option(
        24, "Iterations of an evidence trial, whose results are compared between arms.", least=1
    )
    counting_iterations: int = option(
        6, "Iterations of a counting trial, rounded up to the workload's cadence.", least=1
    )
    threads: int = option(
        1,
        "Threads of torch on CPU; with more than one, contention can change the sign of an effect.",
        least=1,
    )
    timeout_s: float = option(
        600.0,
        "Seconds after which a trial is given up with the outcome timeout.",
        above=0,
        most=MOST_WAIT_S,
        method=False,
    )
    margin: float = option(
        0.01, "Relative difference of time below which two arms count as equal.", above=0, method=False
    )
    seed: int = option(
        0,
        "Seed of every trial; the order in which the arms of a round start is drawn from it too.",
        most=2**62,
    )
    servers: int = option(
        5,
        "Most processes that the trials of a pack fork from, each with its own addresses and hash seed; one"
        " serves until the next is ready, and up to three share even the shortest rounds.",
        least=1,
        method=False,
    )
    allocator: str = option(
        "steady",
        "steady: glibc returns no memory to the OS, which it otherwise does at random; system: glibc's own"
        " settings.",
        choices=("steady", "system"),
    )
    precision: float | None = option(
        None,
        "An arm stops, from six rounds on, when the half-width of its intervals is this (0.01 is 1 %);"
        " earlier where its effect is clear, and at rounds_max at the latest.",
        above=0,
        method=False,
    )
    budget_s: float | None = option(
        None, "Seconds of trials after which a pack starts no other round.", above=0, method=False
    )
    rounds_max: int = option(
        40,
        "Most rounds where precision or budget_s decide how many there are.",
        least=1,
        most=MOST_ROUNDS,
        method=False,
    )
    repeats: int = option(
        2,
        "Most rounds of a pack that are measured again because something disturbed them.",
        least=0,
        most=MOST_ROUNDS,
        method=False,
    )
    placebo: int = option(
        0,
        "Copies of the baseline with unused objects in memory; an effect smaller than theirs gets no"
        " verdict.",
        least=0,
        most=1000,
        method=False,
    )
    look: bool = option(False, "Measure `rounds` rounds, however few, and give no verdicts.", method=False)
    timed_parity: bool = option(
        True,
        "Compare the numbers that timing trials ended with too, at the cost of one more trial of each arm.",
        method=False,
    )
    seeds: int = option(
        5,
        "Paired seeds for judging a stochastic level; three more where these do not decide.",
        least=3,
        method=False,
    )
    stall: bool = option(
        False,
        "Measure the baseline once more on its first batches, kept in memory: what an ideal loader"
        " would save.",
        method=False,
    )
    target: float | None = option(
        None,
        "Train every arm until target_figure reaches this value, and report the time to it; null: no such"
        " training.",
        method=False,
    )
    target_figure: str = option(
        "last_loss", "Number of the workload that must reach the target, such as accuracy.", method=False
    )
    target_better: str = option(
        "lower",
        "lower: the figure falls to the target, as a loss; higher: it rises to it, as an accuracy.",
        choices=("lower", "higher"),
        method=False,
    )
    target_every: int = option(10, "Iterations between two looks at the figure.", least=1, method=False)
    target_looks: int = option(
        1, "Looks in a row whose mean must reach the target, for a noisy figure.", least=1, method=False
    )
    target_steps: int = option(
        2000, "Iterations after which a training has missed the target.", least=1, method=False
    )
    target_seeds: int = option(
        10, "Seeds that every arm is trained to the target with, the same for all.", least=3, method=False
    )
    memory_gib: float | None = option(
        None,
        "Memory limit of a trial (GiB), as if the device had no more; a trial above it ends as oom.",
        above=0,
    )

    @property
    def memory_bytes(self) -> int | None:
        """Memory that a trial may need; None: what there is."""
        return None if self.memory_gib is None else int(self.memory_gib * 2**30)

    @property
    def method(self) -> str:
        """Digest of what makes trials comparable.

        Options at their default are left out, so that a new option does not void what was measured without
        it.
        """
        values: dict[str, Any] = {"timing": "turns"}
        values |= {
            one.name: value
            for one in fields(self)
            if one.metadata.get("method", True) and (value := getattr(self, one.name)) != default_of(one)
        }
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def adaptive(self) -> bool:
        """Whether what was measured decides how many rounds there are."""
        return not self.look and (self.precision is not None or self.budget_s is not None)

    @property
    def rounds_planned(self) -> int:
        """How many rounds there are at most."""
        return max(self.rounds, self.rounds_max) if self.adaptive else self.rounds

    @property
    def rounds_per_server(self) -> int:
        """Rounds after which a pack's fork server is renewed, if the next has imported or is waited for."""
        return max(1, self.rounds // self.servers)


@dataclass(frozen=True)
class Target:
    """When a training is good enough.

    Attributes
    ----------
    figure, value : number of the workload, and what it has to reach
    rising : whether it has to rise to the value
    every : iterations between two looks
    looks : in a row, whose mean counts
    steps : iterations after which the target is missed
    """

    figure: str
    value: float
    rising: bool
    every: int
    looks: int
    steps: int

    @classmethod
    def of(cls, measure: MeasureConfig) -> Target | None:
        """Read the target of a sweep; None where it has none."""
        if measure.target is None:
            return None
        return cls(
            figure=measure.target_figure,
            value=measure.target,
            rising=measure.target_better == "higher",
            every=measure.target_every,
            looks=measure.target_looks,
            steps=measure.target_steps,
        )

    def __str__(self) -> str:
        return f"{self.figure.replace('_', ' ')} {'>=' if self.rising else '<='} {self.value:g}"

    @property
    def last_look(self) -> int:
        """Iterations of the last look; one at least, however few are allowed."""
        return max(1, self.steps // self.every) * self.every

    def steps_in(self, course: Mapping[int, Mapping[str, float]]) -> int | None:
        """Find the iterations after which a course reached the target; None where it has not."""
        looks = sorted(course)
        for end in range(self.looks, len(looks) + 1):
            values = [course[at].get(self.figure, math.nan) for at in looks[end - self.looks : end]]
            mean = sum(values) / self.looks
            if mean >= self.value if self.rising else mean <= self.value:
                return looks[end - 1]
        return None

    def decided_by(self, course: Mapping[int, Mapping[str, float]]) -> bool:
        """Whether a course tells when it reached this target: it has all looks until then, or until the last.

        One that was followed for another target, or with other looks, may not.
        """
        reached = self.steps_in(course)
        needed = range(self.every, (reached or self.last_look) + 1, self.every)
        return sorted(at for at in course if at <= needed[-1]) == list(needed) and all(
            self.figure in course[at] for at in needed
        )


@dataclass(frozen=True)
class TrackingConfig:
    """What is published to W&B, where to, and how much publishing may cost."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "ignore"}  # sweeps are published by any version

    mode: str = option(
        "offline",
        "offline: run folders on disk; online: to a server between rounds; disabled: records only.",
        choices=MODES,
    )
    project: str = option("perfsweep", "Project that runs are published to.")
    entity: str | None = option(
        None, "Team or user; null: WANDB_ENTITY of the shell, else the account's default."
    )
    base_url: str | None = option(
        None, "Server; null: WANDB_BASE_URL of the shell, else the one the account was logged in to."
    )
    share: float = option(
        0.02, "Part of a pack's time that publishing to a server between rounds may take.", above=0, most=1
    )
    uploads: int = option(4, "Runs that are uploaded at once.", least=1)
    patience_s: float = option(
        60.0, "Seconds for one run after which a publisher is given up.", above=0, most=MOST_WAIT_S
    )


@dataclass(frozen=True)
class ReportConfig:
    """What a report shows next to time, results and memory."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "ignore"}  # sweeps are read by any version

    columns: list[str] = option(
        list,
        "Further columns of the tables, in this order; docs/tables.md says how to read each.",
        choices=COLUMNS,
    )


@dataclass(frozen=True)
class ProfileConfig:
    """What is profiled, with which tools, under which circumstances."""

    __pydantic_config__: ClassVar[dict[str, Any]] = _STRICT

    tool: str = option(
        "all",
        "Tool that looks at the slice; all: one trial for each tool that this device can use.",
        choices=("pyinstrument", "torch", "memory", "roofline", "dynamo", "all"),
    )
    slice: str = option(
        "auto", "Part to profile: step, job, first, or a range of iterations such as 10:40; auto: what suits."
    )
    wait: int = option(1, "Iterations before the slice that torch.profiler does not watch.", least=0)
    warmup: int = option(
        1,
        "Iterations before the slice that torch.profiler watches for nothing, since it is slow at first.",
        least=0,
    )
    active: int = option(
        3, "Iterations of a slice that has no name, for all tools but pyinstrument.", least=1
    )
    repeats: int = option(
        2, "How often the slice runs with the profiler, and as often without it, in turns.", least=1
    )
    interval_s: float = option(
        0.001, "Seconds between two samples of pyinstrument, and of the host's memory.", above=0
    )
    hook: str = option(
        "on",
        "The recorder of iterations and phases: on, off, or both one after the other.",
        choices=("on", "off", "both"),
    )
    debug_log: str = option(
        "off", "Logging at level DEBUG: on, off, or both one after the other.", choices=("on", "off", "both")
    )
    stacks: bool = option(
        False, "torch.profiler notes the Python stack of each operator, at several times the cost."
    )
    top: int = option(15, "Rows of the tables on the terminal.", least=1)

    @property
    def variant(self) -> str:
        """What differs from the usual circumstances, empty where nothing does."""
        unusual = {"hook off": self.hook == "off", "debug log on": self.debug_log == "on"}
        return ", ".join(name for name, holds in unusual.items() if holds)

    @property
    def folder_name(self) -> str:
        """Name of the profile's folder, next to the folders of other tools."""
        return "-".join([self.tool, *self.variant.replace(",", "").split()])
