"""`perfsweep judge` and `comment`: two versions of code, and what a pull request is told of them.

`perfsweep bisect` compares two versions in each of its steps, and `perfsweep tune` a script and its patch.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from perfsweep.pipelines import api
from perfsweep.pipelines.analysis.arm_records import ArmRecords
from perfsweep.pipelines.api import Planned
from perfsweep.pipelines.commands.sweep import Display
from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.exits import DONE
from perfsweep.pipelines.plan import plan as planning
from perfsweep.pipelines.plan.provided import SameCode, workload_file
from perfsweep.pipelines.report import markdown, version_answer
from perfsweep.pipelines.report.version_answer import Answer, Side, judged
from perfsweep.pipelines.store import provenance
from perfsweep.pipelines.store.files import read_whole
from perfsweep.pipelines.store.records import PLACEBO
from perfsweep.pipelines.terminal import error_console
from perfsweep.pipelines.versions.environments import ENVIRONMENT
from perfsweep.pipelines.versions.repository import WORKTREE, Repository
from perfsweep.workloads.errors import ConfigError, PerfsweepError, harmless

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

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._said = set[str]()

    def begins(self, planned: Planned, unfinished: Mapping[str, int]) -> None:
        """Say nothing of a plan that is that of every other step."""

    def notice(self, text: str) -> None:
        """Print a sentence that was not printed before."""
        if text not in self._said:
            self._said.add(text)
            super().notice(text)


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


def judge(words: Sequence[str], as_json: bool, environment: bool = False) -> int:
    """Judge the second of two versions against the first; the status says how that ended.

    Parameters
    ----------
    environment : the versions are environments, and not commits

    Raises
    ------
    ConfigError
        A version is unknown, has not got the workload, or cannot run it.
    """
    names = [word for word in words if "=" not in word]
    if len(names) > 2 or list(words[: len(names)]) != names:
        raise ConfigError(
            "judge takes at most BASE and HEAD, and then the options of a sweep, such as workload="
        )
    versions = TwoVersions.of("judge", words[len(names) :], commits=not environment)
    base, head = _environments(names) if environment else _commits(versions, names)
    if base.name == head.name:
        raise ConfigError(f"{base.name} is named twice; name two versions")
    answer = versions.compare(base, head, Display(error_console()))
    click.echo(json.dumps(answer.as_json(), indent=2) if as_json else harmless(answer.line))
    return answer.status


def _environments(names: Sequence[str]) -> tuple[Side, Side]:
    """The two environments; nothing says which one came first."""
    if len(names) != 2:
        raise ConfigError(
            "judge --environment compares two: name both, such as perfsweep judge --environment .venv .venv-b"
            " -- workload=..."
        )
    base, head = (Side(name, None, ENVIRONMENT) for name in names)
    return base, head


def _commits(versions: TwoVersions, names: Sequence[str]) -> tuple[Side, Side]:
    """The two commits: the named ones, else what changed last."""
    base, head = (*names, WORKTREE)[:2] if names else _changed_last(versions.commits)
    return versions.side(base), versions.side(head)


def _changed_last(repository: Repository) -> tuple[str, str]:
    """What is not committed against HEAD; else all commits of this branch against where it began."""
    if repository.is_dirty:
        return "HEAD", WORKTREE
    main = repository.default_branch
    base = repository.merge_base(main, "HEAD") if main else None
    if base is None or base == repository.commit("HEAD"):
        raise ConfigError(
            f"{repository.root} has neither uncommitted changes nor commits beyond {main or 'a main branch'};"
            " name what to compare, such as perfsweep judge HEAD~1 HEAD -- workload=..."
        )
    return base[:12], "HEAD"


def comment(files: Sequence[str], output: str | None = None) -> int:
    """Write the comment to a file, or print it.

    Raises
    ------
    ConfigError
        A file is none of `perfsweep judge --json`, or the comment cannot be written.
    """
    text = markdown.comment([_read(Path(file)) for file in files])
    if output is None:
        click.echo(text, nl=False)
        return DONE
    try:
        Path(output).write_text(text)
    except OSError as error:
        raise ConfigError(f"{output} cannot be written ({error.strerror}); choose another file") from error
    return DONE


def _read(file: Path) -> dict[str, Any]:
    remedy = f"write it by: perfsweep judge --json -- workload=... > {file}"
    try:
        found = json.loads(read_whole(file))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror}); {remedy}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is no JSON; {remedy}") from error
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema != version_answer.SCHEMA or not found.keys() >= version_answer.FIELDS:
        raise ConfigError(f"{file} is no answer of perfsweep judge (schema {schema}); {remedy}")
    return found
