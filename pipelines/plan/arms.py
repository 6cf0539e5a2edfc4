"""Which combinations of levels are legal, and the legal one nearest to what was asked.

An arm is written down completely: one level for each toggle. People and designs name only what differs from
the baseline; `Space` fills in the rest, follows requirements, and says in words what cannot go together.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perfsweep.workloads.api import Device, Level, Levels, LevelValue, Toggle
from perfsweep.workloads.errors import ConfigError


@dataclass(frozen=True)
class Problem:
    """Why an assignment is illegal: `other` (None: the configuration) forbids the level of `toggle`."""

    toggle: str
    other: str | None
    text: str
    remedies: tuple[LevelValue, ...] = ()  # levels of `other` that would do


class Space:
    """The arms of one workload configuration on one kind of device."""

    def __init__(self, toggles: tuple[Toggle, ...], config: Any = None, device: Device | None = None) -> None:
        self.toggles = {toggle.name: toggle for toggle in toggles}
        self.config = config
        self.device = device or Device()

    def toggle(self, name: str) -> Toggle:
        """The toggle called `name`.

        Raises
        ------
        ConfigError
            There is none; the message lists the toggles and the likeliest one meant.
        """
        if name in self.toggles:
            return self.toggles[name]
        close = difflib.get_close_matches(name, self.toggles, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(f"toggles.{name} is unknown; {hint}this workload has: {', '.join(self.toggles)}")

    def parse(self, chosen: Mapping[str, LevelValue | bool]) -> dict[str, LevelValue]:
        """Levels as a user writes them, as declared values."""
        return {name: self.toggle(name).level(value).value for name, value in chosen.items()}

    def complete(self, chosen: Mapping[str, LevelValue | bool]) -> dict[str, LevelValue]:
        """One level for each toggle: those in `chosen`, and baselines for the rest."""
        fixed = self.parse(chosen)
        levels = {name: fixed.get(name, toggle.levels[0].value) for name, toggle in self.toggles.items()}
        # Baselines may depend on other toggles' levels, conditional themselves: go round until all rest.
        for _ in self.toggles:
            before = dict(levels)
            for name, toggle in self.toggles.items():
                if name not in fixed:
                    levels[name] = toggle.baseline(levels, self.device)
            if levels == before:
                break
        return levels

    def choices(self, levels: Levels) -> dict[str, LevelValue]:
        """The levels that differ from their baseline."""
        return {
            name: value
            for name, value in levels.items()
            if value != self.toggles[name].baseline(levels, self.device)
        }

    def problems(self, levels: Levels) -> list[Problem]:
        """All reasons why a complete assignment is illegal."""
        found = []
        for name, value in levels.items():
            level = self.toggles[name].level(value)
            for other, wanted in level.requires.items():
                if levels[other] not in wanted:
                    needed = f"{other}={' or '.join(map(str, wanted))}"
                    text = f"{name}={value} requires {needed}, and {other} is {levels[other]}"
                    found.append(Problem(name, other, text, wanted))
            found += self._unmet_alternatives(name, level, levels)
            for other, refused in level.conflicts.items():
                if levels[other] in refused:
                    rest = tuple(x.value for x in self.toggles[other].levels if x.value not in refused)
                    valid = f"; choose {other} from: {', '.join(map(str, rest))}" if rest else ""
                    text = f"{name}={value} conflicts with {other}={levels[other]}{valid}"
                    found.append(Problem(name, other, text, rest))
            if reason := level.refused(self.config, levels):
                found.append(Problem(name, None, f"{name}={value} is refused: {reason}"))
        return found

    def _unmet_alternatives(self, name: str, level: Level, levels: Levels) -> list[Problem]:
        """One problem for each toggle that could meet a requirement which none meets."""
        if not level.requires_any or any(
            levels[other] in wanted for other, wanted in level.requires_any.items()
        ):
            return []
        ways = " or ".join(
            f"{other}={'|'.join(map(str, wanted))}" for other, wanted in level.requires_any.items()
        )
        text = f"{name}={level.value} requires {ways}"
        return [Problem(name, other, text, wanted) for other, wanted in level.requires_any.items()]

    def legal(self, chosen: Mapping[str, LevelValue | bool]) -> dict[str, LevelValue]:
        """The complete assignment of `chosen`, taken literally.

        Raises
        ------
        ConfigError
            It is illegal; the message gives every reason.
        """
        levels = self.complete(chosen)
        if problems := self.problems(levels):
            raise ConfigError("these levels cannot go together: " + _texts(problems))
        return levels

    def closure(
        self, chosen: Mapping[str, LevelValue | bool], onto: Levels | None = None
    ) -> dict[str, LevelValue]:
        """The legal assignment with `chosen` that adds the fewest levels by following requirements.

        Levels in `onto` (an arm to start from) are kept unless a requirement of `chosen` moves them.

        Raises
        ------
        ConfigError
            Requirements contradict `chosen` or each other.
        """
        fixed = self.parse(chosen)
        kept = self.choices(onto) if onto else {}
        soft = {name: value for name, value in kept.items() if name not in fixed}
        tried: set[tuple[str, LevelValue]] = set()
        while True:
            levels = self.complete({**soft, **fixed})
            problems = self.problems(levels)
            if not problems:
                return levels
            if not self._mend(problems, fixed, soft, tried):
                asked = ", ".join(f"{name}={value}" for name, value in fixed.items())
                raise ConfigError(f"no legal arm has {asked}: " + _texts(problems))

    def _mend(
        self,
        problems: list[Problem],
        fixed: Mapping[str, LevelValue],
        soft: dict[str, LevelValue],
        tried: set[tuple[str, LevelValue]],
    ) -> bool:
        """Move one level that the user did not ask for so that one problem goes away."""
        for problem in problems:
            for value in problem.remedies if problem.other not in fixed else ():
                if problem.other and (problem.other, value) not in tried:
                    tried.add((problem.other, value))
                    soft[problem.other] = value
                    return True
            if problem.toggle in soft:  # an inherited level that cannot stay goes back to its baseline
                del soft[problem.toggle]
                return True
            # The baseline level can be the obstacle: try the toggle's other levels.
            for level in self.toggles[problem.toggle].levels if problem.toggle not in fixed else ():
                if (problem.toggle, level.value) not in tried:
                    tried.add((problem.toggle, level.value))
                    soft[problem.toggle] = level.value
                    return True
        return False

    def without(self, levels: Levels, name: str) -> dict[str, LevelValue]:
        """The nearest legal arm with toggle `name` at its baseline.

        Levels that need `name` go back to their baselines with it; compare the result with `levels` to see
        which.
        """
        kept = {other: value for other, value in self.choices(levels).items() if other != name}
        while True:
            arm = self.complete(kept)
            culprits = [
                problem for problem in self.problems(arm) if problem.toggle in kept or problem.other in kept
            ]
            if not culprits:
                if problems := self.problems(arm):
                    raise ConfigError(f"no legal arm has {name} at its baseline: " + _texts(problems))
                return arm
            culprit = culprits[0]
            del kept[culprit.toggle if culprit.toggle in kept else str(culprit.other)]

    def label(self, levels: Levels) -> str:
        """The canonical short name of an arm: its levels off the baseline."""
        return ",".join(f"{name}={value}" for name, value in self.choices(levels).items()) or "baseline"


def _texts(problems: list[Problem]) -> str:
    return "; ".join(dict.fromkeys(problem.text for problem in problems))
