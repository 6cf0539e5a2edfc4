"""A workload with levels that act on this machine and not on a nameless one, honest and not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perfsweep.workloads.api import Check, Clock, Context, Device, Evidence, Level, Levels, Toggle, Workload


@dataclass
class Config:
    """Whether the levels do what they say."""

    idle: bool = False
    wrong: bool = False


def nameless(device: Device) -> str | None:
    return None if device.name else "needs a device with a name"


class OnlyHere(Workload):
    """Counts to three, at once or one by one."""

    Config = Config
    toggles = (
        Toggle(
            "way",
            (Level("one_by_one"), Level("at_once", unsupported=nameless, witness="steps")),
            "how",
            "toy",
        ),
    )
    checks = (Check("total"),)

    def setup(self, config: Config, levels: Levels, context: Context) -> None:
        self._at_once = levels["way"] == "at_once" and not config.idle
        self._off = 1.0 if levels["way"] == "at_once" and config.wrong else 0.0
        self._iterations = self._steps = 0

    def step(self, clock: Clock) -> None:
        self._iterations += 1
        self._steps += 1 if self._at_once else 3

    def progress(self) -> float:
        return float(self._iterations)

    def evidence(self) -> Evidence:
        return Evidence({"total": [3.0 * self._iterations + self._off]})

    def counters(self) -> dict[str, Any]:
        return {"steps": self._steps}


def _way(level: Level, *others: Toggle) -> tuple[Toggle, ...]:
    return (Toggle("way", (Level("one_by_one"), level), "how", "toy"), *others)


class Nameless(OnlyHere):
    """Has a level whose acting nothing would show."""

    toggles = _way(Level("at_once", unsupported=nameless))


class Contradicting(OnlyHere):
    """Has a level that needs what it refuses."""

    toggles = _way(
        Level(
            "at_once",
            unsupported=nameless,
            witness="steps",
            requires={"side": ("on",)},
            conflicts={"side": ("on",)},
        ),
        Toggle("side", (Level("off"), Level("on")), "beside", "toy"),
    )
