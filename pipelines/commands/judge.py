"""`perfsweep judge`: one version, of the user's code or of what it runs with, against another."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Sequence

import click
from rich.console import Console

from pipelines import api
from pipelines.commands.sweep import Display
from pipelines.config import composition, validation
from pipelines.config.types import SweepCommand
from pipelines.exits import DONE
from pipelines.plan import plan as planning
from pipelines.plan.provided import SameCode, workload_file
from pipelines.report.version_answer import Answer, Side, judged
from pipelines.store import provenance
from pipelines.store.records import PLACEBO
from pipelines.terminal import WIDTH
from pipelines.versions.notices import ENVIRONMENT
from pipelines.versions.repository import WORKTREE, Repository
from workloads.errors import ConfigError, PerfsweepError

DEFAULTS = (
    "sweep=ablation",
    "tracking=disabled",
    "measure.rounds=6",
    "measure.servers=3",
    "measure.rounds_max=200",
    "measure.margin=0.025",
    "measure.precision=0.0125",
    "measure.budget_s=300",
)
"""What is asked of a sweep of two versions; whatever is typed comes after it, and wins.

Rounds end when the interval is half as wide as the margin to either side, or with the budget, and never
because of what the interval says: see `pipelines.statistics.estimates.precise_enough`. A difference of twice
the margin is then as sure to be called as none is.
"""


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
    started = time.monotonic()
    names = [word for word in words if "=" not in word]
    if len(names) > 2 or list(words[: len(names)]) != names:
        raise ConfigError(
            "judge takes at most BASE and HEAD, and then the options of a sweep, such as workload="
        )
    overrides = [*DEFAULTS, *(word for word in words if "=" in word)]
    if any(word.startswith(("axes.", "sweep=")) for word in words):
        raise ConfigError("judge compares two versions and nothing else; other axes are for perfsweep sweep")
    if not any(word.startswith("workload=") for word in words):
        raise ConfigError("which workload? name your own: perfsweep judge -- workload=script:train.yaml")
    base, head = _environments(names) if environment else _versions(names, overrides)
    if base.name == head.name:
        raise ConfigError(f"{base.name} is named twice; name two versions")
    named = ",".join(composition.written(side.name) for side in (base, head))
    cfg = composition.compose("sweep", [*overrides, f"axes.{base.kind}=[{named}]"])
    command = validation.typed(cfg, SweepCommand)
    command.name = command.name or _folder_name(command, base, head)
    answer = _answer(command, provenance.sweep_yaml(cfg), base, head)
    answer = dataclasses.replace(
        answer,
        seconds=time.monotonic() - started,
        budget_s=command.measure.budget_s,
        reason=" ".join(answer.reason.split()),
    )
    click.echo(json.dumps(answer.as_json(), indent=2) if as_json else answer.line)
    return answer.status


def _answer(command: SweepCommand, config_text: str, base: Side, head: Side) -> Answer:
    said = Display(Console(stderr=True, width=WIDTH, emoji=False))
    margin = command.measure.margin
    try:
        planned = api.plan(command, config_text)
    except SameCode:
        return Answer(base, head, "no difference", "same code", DONE, margin)
    said.notices(planned.notices)
    for pack, log in api.measure(planned, said).items():
        raise PerfsweepError(f"pack {pack} broke off; the end of its log: {log}")
    sweep = planned.sweep
    sweep.report()
    (result,) = (one for one in sweep.comparison.effects if one.effect.design != PLACEBO)
    found = judged(result)
    return Answer(base, head, margin=margin, sweep=str(sweep.folder.path), **found)


def _environments(names: Sequence[str]) -> tuple[Side, Side]:
    """The two environments; nothing says which one somebody had before."""
    if len(names) != 2:
        raise ConfigError(
            "judge --environment compares two: name both, such as perfsweep judge --environment .venv .venv-b"
            " -- workload=..."
        )
    base, head = (Side(name, None, ENVIRONMENT) for name in names)
    return base, head


def _versions(names: Sequence[str], overrides: Sequence[str]) -> tuple[Side, Side]:
    """The two versions: those that are named, else what was changed last."""
    command = validation.typed(composition.compose("sweep", overrides), SweepCommand)
    repository = Repository.of(workload_file(planning.load_workload(command.workload)[0]))
    base, head = (*names, WORKTREE)[:2] if names else _changed_last(repository)
    return _side(repository, base), _side(repository, head)


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


def _side(repository: Repository, name: str) -> Side:
    return Side(name, None if name == WORKTREE else repository.commit(name))


def _folder_name(command: SweepCommand, base: Side, head: Side) -> str:
    cls, _ = planning.load_workload(command.workload)
    title = planning.folder_name(cls, str(command.workload["name"]))
    names = (side.commit[:10] if side.commit else side.name for side in (base, head))
    return re.sub(r"[^\w.-]+", "-", "-".join([title, "judge", *names]))
