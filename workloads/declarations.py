"""What a workload declares: its toggles with their levels, the claims of reports, and the checks of parity.

Plain values without torch, so that a plan can be made or refused before torch is imported.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from perfsweep.workloads.errors import ConfigError

LevelValue = str | int | float
Levels = Mapping[str, LevelValue]
"""One level for each toggle, by toggle name."""
Choices = Mapping[str, tuple[LevelValue, ...]]
"""Some toggles, each with some of its levels."""


class Parity(StrEnum):
    """How much a level may change the results."""

    EXACT = "exact"
    TOLERANCE = "tolerance"
    STOCHASTIC = "stochastic"


class Comparator(StrEnum):
    """How a check makes one deviation from two pieces of evidence; it must not exceed the check's bound."""

    IDENTICAL = "identical"  # number of differing entries
    RELATIVE = "relative"  # ||a - r|| / ||r||, in float64
    ABSOLUTE = "absolute"  # max |a - r|
    COSINE = "cosine"  # 1 - cos(a, r), in float64
    WORST_COSINE = "worst_cosine"  # the largest 1 - cos(a, r) over the rows of two matrices, in float64
    AT_MOST = "at_most"  # always the arm's own value: an oracle inside the workload already compared


@dataclass(frozen=True)
class Device:
    """Facts about where trials run, gathered without initialising an accelerator.

    `capability` is CUDA's, None where it is not known: a login node cannot ask the GPUs of its queues.
    `vendor` is the maker of an x86 processor as it calls itself, such as GenuineIntel.
    """

    type: str = "cpu"
    count: int = 0
    name: str = ""
    memory_bytes: int = 0
    capability: tuple[int, int] | None = None
    cores: int = 1
    compiler: bool = False
    vendor: str = ""

    def below(self, major: int, minor: int) -> bool:
        """Whether the capability is known to be lower."""
        return self.capability is not None and self.capability < (major, minor)


ANYTHING = "anything"
"""Witness of a level that may change anything: any count, results, time or memory."""


@dataclass(frozen=True)
class Level:
    """One value of a toggle, and what the value implies.

    Attributes
    ----------
    parity, bounds : the class of the level, and bounds by check name where they differ from the class default
    requires, conflicts : other toggles and the levels they must (must not) have with this one
    requires_any : other toggles and levels; at least one of the toggles must have such a level
    refused : reason why this level cannot go with a workload configuration and the other levels, or None
    unsupported : reason why this level cannot act on a device, or None
    env : variables set before the process starts importing; ``{scratch_dir}`` is filled in, and
        ``{built:FILE}`` by the library that is built from a C++ source in `workloads`
    compiles_anew : whether a trial cannot use compiled code of other trials
    autotunes : whether compiling chooses kernels by timing them, so that equal code may differ when compiled
    ranks, per_gpu : number of processes that form one trial; with `per_gpu` at least one for each GPU
    loosened : the class that replaces `parity` for a workload configuration and other levels, or None
    witness : counter that changes against the base when the level acts, or `ANYTHING`; unchanged means
        *no effect*
    commit_every : rows of metrics between two commits to W&B from inside the loop; None keeps rows in memory
        until the measurement has ended
    in_code : what to change in a program that has the baseline, in a few words of code; ``{value}`` is filled
        in. Reports show it if the level should be turned on
    """

    value: LevelValue
    parity: Parity = Parity.EXACT
    bounds: Mapping[str, float] = field(default_factory=dict)
    requires: Choices = field(default_factory=dict)
    requires_any: Choices = field(default_factory=dict)
    conflicts: Choices = field(default_factory=dict)
    refused: Callable[[Any, Levels], str | None] = lambda config, levels: None
    unsupported: Callable[[Device], str | None] = lambda device: None
    env: Mapping[str, str] = field(default_factory=dict)
    compiles_anew: bool = False
    autotunes: bool = False
    ranks: int = 1
    per_gpu: bool = False
    loosened: Callable[[Any, Levels], Parity | None] = lambda config, levels: None
    witness: str | None = None
    commit_every: int | None = None
    in_code: str = ""

    def processes(self, device: Device) -> int:
        """Number of processes that form one trial on `device`."""
        return max(self.ranks, device.count) if self.per_gpu else self.ranks

    def parity_with(self, config: Any, levels: Levels) -> Parity:
        """The class of this level under `config` and next to `levels`."""
        return self.loosened(config, levels) or self.parity


@dataclass(frozen=True)
class Numbers:
    """Any number in [low, high] is a level, with the attributes of `like`; `ranks`: and as many processes."""

    low: float
    high: float | None = None
    like: Level = Level(0)
    integer: bool = True
    ranks: bool = False

    def level(self, value: int | float) -> Level:
        """The level of a number in this range."""
        own = {"ranks": int(value)} if self.ranks else {}
        return dataclasses.replace(self.like, value=value, **own)

    def holds(self, value: LevelValue) -> bool:
        """Whether `value` is a number of this range."""
        if isinstance(value, str) or (self.integer and value % 1 != 0):
            return False
        return self.low <= value and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        kind = "integer" if self.integer else "number"
        return f"any {kind} from {self.low:g}" + ("" if self.high is None else f" to {self.high:g}")


@dataclass(frozen=True)
class Baseline:
    """Another baseline level where other toggles, or the device, make the first level meaningless."""

    value: LevelValue
    given: Choices = field(default_factory=dict)
    device: Callable[[Device], bool] = lambda device: True


@dataclass(frozen=True)
class Toggle:
    """One optimisation choice. The first level is its baseline, unless `baselines` names another.

    The pipelines know a toggle by what it declares here, never by its name. `owns_collector` says that its
    levels decide when Python's collector runs: trials of the workload then do not collect or freeze objects.
    `owns_allocator` says that they decide about malloc: `measure.allocator` then has no effect.
    `ideal_loader` says that the second level is a loader that never waits: `measure.stall` uses it.
    """

    name: str
    levels: tuple[Level, ...]
    doc: str
    source: str = ""
    numbers: Numbers | None = None
    baselines: tuple[Baseline, ...] = ()
    owns_collector: bool = False
    owns_allocator: bool = False
    ideal_loader: bool = False

    def level(self, value: LevelValue | bool) -> Level:
        """The level written as `value` in YAML or on the command line.

        Raises
        ------
        ConfigError
            `value` is no level of this toggle; the message lists the valid ones.
        """
        # PyYAML reads on/off as booleans, and a quoted 8 is still the level 8.
        text = {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
        if text not in self._known:  # a plan of thousands of arms uses few levels
            self._known[text] = self._find(text)
        return self._known[text]

    @functools.cached_property
    def _known(self) -> dict[str, Level]:
        return {}

    def _find(self, text: str) -> Level:
        """The level that a text names, or the level of the number that it writes."""
        number = as_number(text)
        for level in self.levels:
            if str(level.value) == text or (number is not None and level.value == number):
                return level
        if self.numbers and number is not None and self.numbers.holds(number):
            return self.numbers.level(number)
        raise ConfigError(
            f"toggles.{self.name}={text} is not a level of {self.name}; choose from: {self.choices}"
        )

    def baseline(self, levels: Levels, device: Device) -> LevelValue:
        """The baseline level next to `levels` on `device`."""
        for other in self.baselines:
            if other.device(device) and all(
                levels.get(name) in values for name, values in other.given.items()
            ):
                return other.value
        return self.levels[0].value

    @property
    def choices(self) -> str:
        """The valid levels, as a user would type them."""
        named = ", ".join(str(level.value) for level in self.levels)
        return f"{named}, or {self.numbers}" if self.numbers else named


def as_number(text: str) -> int | float | None:
    """The finite number that a text writes, as an int if it is whole; None if the text is no number."""
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number


@dataclass(frozen=True)
class Claim:
    """What a report said, as data.

    `arms` are the levels it speaks of, one mapping for each alternative; their base has the levels `against`
    where the report compares with something else than the baseline. `low` and `high` bound the
    speed ratio (2.0 = half the time), for ``memory`` the ratio of peak memory, for a ``predicate`` the
    counter or number `figure` of the arm itself; `word` is the size word of a ``qualitative`` claim, or of
    one about memory without numbers; `unsupported` the reason why a device cannot decide it, or None.
    `setting` are fields of the workload's configuration with the values that the claim speaks of: an absolute
    figure of a large problem is neither confirmed nor refuted by a small one. `contradicts` is a sentence of
    the same report that contradicts the claim.
    """

    text: str
    source: str
    section: str
    arms: tuple[Mapping[str, LevelValue], ...]
    kind: Literal["speedup", "memory", "predicate", "qualitative"] = "speedup"
    low: float | None = None
    high: float | None = None
    word: str | None = None
    against: Levels = field(default_factory=dict)
    figure: str | None = None
    unsupported: Callable[[Device], str | None] = lambda device: None
    setting: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    contradicts: str = ""

    def speaks_of(self, config: Any) -> bool:
        """Whether a sweep with this workload configuration can say anything about the claim."""
        return all(getattr(config, name) in values for name, values in self.setting.items())


@dataclass(frozen=True)
class Check:
    """One piece of evidence that parity compares; ``grad/*`` names a family of tensors.

    `bound` None means the rule of the level's class and the dtype. `against="oracle"`: the evidence
    ``<name>`` of the arm alone is judged. `excused` names a boolean tensor that marks legitimate deviations.
    """

    name: str
    comparator: Comparator = Comparator.RELATIVE
    bound: float | None = None
    against: Literal["reference", "oracle"] = "reference"
    excused: str | None = None


REPLAYED = "replay/"
"""Prefix of tensors that come from single iterations, replayed from states of the baseline."""

REPLAY = Check(f"{REPLAYED}*")
"""Gradients of single iterations from the baseline's states: judged in every `replayable` workload, in
addition to its own checks. Levels may state bounds for it."""


def declaration_problems(
    toggles: tuple[Toggle, ...], claims: tuple[Claim, ...], checks: tuple[Check, ...]
) -> list[str]:
    """Everything in declarations that cannot be meant, as phrases."""
    return [*toggle_problems(toggles), *claim_problems(claims, toggles), *bound_problems(toggles, checks)]


def bound_problems(toggles: tuple[Toggle, ...], checks: tuple[Check, ...]) -> list[str]:
    """Bounds of levels for checks that do not exist."""
    known = {check.name for check in (REPLAY, *checks)}
    return [
        f"toggle {toggle.name} bounds {name}, which is no check"
        for toggle in toggles
        for level in _all_levels(toggle)
        for name in level.bounds
        if name not in known
    ]


def toggle_problems(toggles: tuple[Toggle, ...]) -> list[str]:
    """Doubled names and levels, and requirements or baselines that name what does not exist."""
    problems = []
    by_name = {toggle.name: toggle for toggle in toggles}
    if len(by_name) < len(toggles):
        problems.append("two toggles share a name")
    for toggle in toggles:
        values = [str(level.value) for level in toggle.levels]
        if len(values) < (1 if toggle.numbers else 2):
            problems.append(f"toggle {toggle.name} has fewer than two levels")
        if len(set(values)) < len(values):
            problems.append(f"toggle {toggle.name} repeats a level")
        for level in _all_levels(toggle):
            for choices in (level.requires, level.requires_any, level.conflicts):
                problems += _choice_problems(f"{toggle.name}={level.value}", choices, by_name)
        for other in toggle.baselines:
            problems += _choice_problems(
                f"a baseline of {toggle.name}", {toggle.name: (other.value,), **other.given}, by_name
            )
    return problems


def claim_problems(claims: tuple[Claim, ...], toggles: tuple[Toggle, ...]) -> list[str]:
    """Claims about toggles or levels that do not exist, and bounds that do not fit the kind."""
    problems = []
    by_name = {toggle.name: toggle for toggle in toggles}
    for claim in claims:
        where = f"claim {claim.source} {claim.section}"
        bounded = claim.low is not None or claim.high is not None
        for arm in (*claim.arms, claim.against):
            problems += _choice_problems(where, {name: (value,) for name, value in arm.items()}, by_name)
        if claim.kind == "qualitative" and claim.word is None:
            problems.append(f"{where} is qualitative and has no word")
        sized = bounded or (claim.kind == "memory" and claim.word is not None)
        if claim.kind in ("speedup", "memory") and not sized:
            problems.append(f"{where} is about {claim.kind} and has neither low nor high")
        if claim.kind == "predicate" and bounded != (claim.figure is not None):
            problems.append(
                f"{where} is a predicate and has bounds without a figure, or a figure without bounds"
            )
        if claim.low is not None and claim.high is not None and claim.low > claim.high:
            problems.append(f"{where} has low above high")
    return problems


def _all_levels(toggle: Toggle) -> list[Level]:
    return [*toggle.levels, *([toggle.numbers.like] if toggle.numbers else [])]


def _choice_problems(where: str, choices: Choices, toggles: Mapping[str, Toggle]) -> list[str]:
    problems = []
    for name, values in choices.items():
        if name not in toggles:
            problems.append(f"{where} names the unknown toggle {name}")
            continue
        if not isinstance(values, tuple):
            problems.append(f"{where} must give the levels of {name} as a tuple")
            continue
        for value in values:
            try:
                toggles[name].level(value)
            except ConfigError as error:
                problems.append(f"{where}: {error}")
    return problems
