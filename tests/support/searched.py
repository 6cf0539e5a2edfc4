"""A search whose observations are stated: what stands where a sweep would measure them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

from rich.console import Console
from toys.tunable import Config, Tunable

from perfsweep.pipelines.config.types import MeasureConfig, TuneCommand, TuneConfig
from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.plan.designs import Assignment, PlannedEffect
from perfsweep.pipelines.search.driver import SearchDriver
from perfsweep.pipelines.search.factors import Factor, Grid, Point
from perfsweep.pipelines.search.search import Observation, Proposal
from perfsweep.pipelines.store.records import Arm, SweepFolder
from perfsweep.workloads.api import Device, LevelValue

SPACE = Space(Tunable.toggles, Config())
FUSE, NARROW = Factor("fuse", (None, "on")), Factor("narrow", (None, "on"))
SLAB = Factor("slab", (1, 2, 4), (0.0, 1.0, 2.0))


@dataclass
class StatedSweep:
    """Knows of every arm what is stated, once it has been asked for; `breaks` is raised instead, if given."""

    path: Path
    stated: Mapping[str, Observation]
    breaks: BaseException | None = None
    remote: bool = False
    reference_levels: Mapping[str, LevelValue] = field(default_factory=dict)
    asked: list[list[PlannedEffect]] = field(default_factory=list)
    cancelled: int = 0
    trials: int = 12

    def __post_init__(self) -> None:
        self.space, self.device = SPACE, Device()
        levels = SPACE.complete(self.reference_levels)
        self.reference = Arm(id=SPACE.label(levels), label=SPACE.label(levels), levels=levels)
        self.folder = SweepFolder(self.path)
        self.where = SimpleNamespace(remote=self.remote)
        sweep = SimpleNamespace(name="search", workload="toys.tunable:Tunable", config={})
        self.manifest = SimpleNamespace(sweep=sweep, packs=())

    def measure(self, candidates: Sequence[PlannedEffect]) -> None:
        self.asked.append(list(candidates))
        if self.breaks:
            raise self.breaks

    def arm(self, levels: Assignment) -> str:
        return SPACE.label(levels)

    def observations(self) -> dict[str, Observation]:
        known = {self.reference.id, *(self.arm(one.pairs[0][0]) for asked in self.asked for one in asked)}
        return {arm: one for arm, one in self.stated.items() if arm in known}


@dataclass
class Searching:
    """A driver over the factors fuse, narrow and a ladder, unless others are named, with what it prints."""

    driver: SearchDriver
    sweep: StatedSweep
    output: StringIO

    @property
    def printed(self) -> str:
        """What has been printed since it was last asked for."""
        text = self.output.getvalue()
        self.output.seek(0)
        self.output.truncate()
        return text


def searching(
    path: Path,
    stated: Mapping[str, Observation],
    factors: Sequence[Factor] = (FUSE, NARROW, SLAB),
    **sweep: object,
) -> Searching:
    """Set up a search that will observe what is stated, by the labels of arms."""
    output = StringIO()
    stand_in = StatedSweep(path, stated, **sweep)  # type: ignore[arg-type]
    grid = Grid(SPACE, stand_in.reference.levels, factors)
    driver = SearchDriver(Console(file=output, width=500), stand_in, grid)  # type: ignore[arg-type]
    return Searching(driver, stand_in, output)


def known(searching: Searching, *points: Point) -> None:
    """Let the driver have measured these."""
    searching.driver.measure(Proposal("screening", points))
    assert searching.printed


def tune_command(runs: Path, measure: MeasureConfig | None = None, **tune: object) -> TuneCommand:
    """The command that such a search belongs to."""
    return TuneCommand(
        workload={"name": "toys.tunable:Tunable"},
        runs=str(runs),
        measure=measure or MeasureConfig(),
        tune=TuneConfig(**tune),  # type: ignore[arg-type]
    )
