"""Measures one version of the user's code against another: what `judge` and each step of `bisect` do."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfsweep.pipelines import api
from perfsweep.pipelines.analysis.arm_records import ArmRecords
from perfsweep.pipelines.api import Planned
from perfsweep.pipelines.commands.sweep import Display
from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.exits import DONE
from perfsweep.pipelines.plan import plan as planning
from perfsweep.pipelines.plan.provided import SameCode, workload_file
from perfsweep.pipelines.report.version_answer import Answer, Side, judged
from perfsweep.pipelines.store import provenance
from perfsweep.pipelines.store.records import PLACEBO
from perfsweep.pipelines.versions.repository import WORKTREE, Repository
from perfsweep.workloads.errors import ConfigError, PerfsweepError

DEFAULTS = (
    "sweep=ablation",
    "tracking=disabled",
    "measure.rounds=6",
    "measure.servers=6",
    "measure.rounds_max=200",
    "measure.repeats=0",
    "measure.margin=0.025",
    "measure.budget_s=300",
)
"""What is asked of a sweep of two versions; whatever is typed comes after it, and wins.

Servers are renewed as often as they are ready: each draws addresses of its own, and most draws count most.
"""

REGION_S = 0.5
"""Seconds of a timed region, unless iterations are typed. A longer region would gain little: processes differ
by more than it could average out."""

PRECISE = 0.5
"""Half-width at which rounds end, as a share of the margin: a difference of twice the margin is then as sure
to be called as none is. Rounds never end because of what the interval says: see
`perfsweep.pipelines.statistics.estimates.precise_enough`."""


class Steps(Display):
    """Shows progress without the plan, and each notice once, of comparisons that are much the same."""

    def __init__(self, display: Display) -> None:
        self._display, self._said = display, set[str]()

    def begins(self, planned: Planned, unfinished: Mapping[str, int]) -> None:
        """Say nothing of a plan that is that of every other step."""

    def trials(self, planned: Planned, unfinished: Mapping[str, int]):
        """Show a line of progress for as long as packs run."""
        return self._display.trials(planned, unfinished)

    def counts(self, text: str) -> None:
        """Print how many jobs run and wait, and what for."""
        self._display.counts(text)

    def notice(self, text: str) -> None:
        """Print a sentence that was not printed before."""
        if text not in self._said:
            self._said.add(text)
            self._display.notice(text)


@dataclass(frozen=True)
class TwoVersions:
    """A workload of the user's, any two versions of which can be compared.

    Attributes
    ----------
    overrides : options of every comparison, typed ones last
    repository : that the workload lies in; None where environments are compared
    title : what the workload is called in folders and answers
    margin, budget_s : as they are configured
    """

    overrides: tuple[str, ...]
    repository: Repository | None
    title: str
    margin: float
    budget_s: float | None

    @classmethod
    def of(cls, command: str, words: Sequence[str], commits: bool = True) -> TwoVersions:
        """Read the options of a command.

        Raises
        ------
        ConfigError
            They name no workload, one without versions, or axes of their own.
        """
        if any(word.startswith(("axes.", "sweep=")) for word in words):
            raise ConfigError(
                f"{command} compares two versions and nothing else; other axes are for perfsweep sweep"
            )
        if not any(word.startswith("workload=") for word in words):
            named = "" if command == "judge" else " GOOD BAD"
            raise ConfigError(
                f"which workload? name your own: perfsweep {command}{named} -- workload=script:train.yaml"
            )
        typed: SweepCommand = validation.typed(
            composition.compose("sweep", [*DEFAULTS, *words]), SweepCommand
        )
        workload = planning.load_workload(typed.workload)[0]
        margin = typed.measure.margin
        counted = any(word.startswith("measure.iterations=") for word in words)
        region = () if counted else (f"measure.region_s={REGION_S:g}",)
        precision = f"measure.precision={margin * PRECISE:g}"
        return cls(
            overrides=(*DEFAULTS, *region, precision, *words),
            repository=Repository.of(workload_file(workload)) if commits else None,
            title=planning.folder_name(workload, str(typed.workload["name"])),
            margin=margin,
            budget_s=typed.measure.budget_s,
        )

    @property
    def commits(self) -> Repository:
        """The repository, of versions that are commits."""
        assert self.repository is not None
        return self.repository

    def side(self, name: str) -> Side:
        """Look a version up by its name.

        Raises
        ------
        ConfigError
            It is unknown.
        """
        return Side(name, None if name == WORKTREE else self.commits.commit(name))

    def compare(
        self, base: Side, head: Side, said: Display, more: Sequence[str] = (), purpose: str = "judge"
    ) -> Answer:
        """Measure what is missing of two versions in turn, and judge the second against the first.

        Parameters
        ----------
        more : further options, which win over the typed ones
        purpose : what the folder is called after; the same two versions have one for each purpose

        Raises
        ------
        CannotRun
            A version has not got the workload, or cannot run it.
        PerfsweepError
            A pack broke off.
        """
        started = time.monotonic()
        named = ",".join(composition.written(side.name) for side in (base, head))
        cfg = composition.compose("sweep", [*self.overrides, *more, f"axes.{base.kind}=[{named}]"])
        command: SweepCommand = validation.typed(cfg, SweepCommand)
        command.name = command.name or self._folder_name(purpose, base, head)
        answer = self._answer(command, provenance.sweep_yaml(cfg), base, head, said)
        return dataclasses.replace(
            answer,
            seconds=time.monotonic() - started,
            budget_s=command.measure.budget_s,
            reason=" ".join(answer.reason.split()),
        )

    def _answer(
        self, command: SweepCommand, config_text: str, base: Side, head: Side, said: Display
    ) -> Answer:
        about = {"workload": self.title, "margin": command.measure.margin}
        try:
            planned = api.plan(command, config_text)
        except SameCode:
            return Answer(base, head, "no difference", "same code", DONE, **about)
        said.notices(planned.notices)
        for pack, log in api.measure(planned, said).items():
            raise PerfsweepError(f"pack {pack} broke off; the end of its log: {log}")
        sweep = planned.sweep
        sweep.report()
        (result,) = (one for one in sweep.comparison.effects if one.effect.design != PLACEBO)
        (pack,) = sweep.manifest.packs
        seconds = sweep.progress.seconds(pack.id, len(pack.orders))
        base_runs = bool(ArmRecords(sweep.progress, [pack]).timed(result.effect.pairs[0][1]))
        said_of_both = judged(result, seconds, base_runs=base_runs)
        return Answer(base, head, sweep=str(sweep.folder.path), **about, **said_of_both)

    def _folder_name(self, purpose: str, base: Side, head: Side) -> str:
        names = (side.commit[:10] if side.commit else side.name for side in (base, head))
        return re.sub(r"[^\w.-]+", "-", "-".join([self.title, purpose, *names]))
