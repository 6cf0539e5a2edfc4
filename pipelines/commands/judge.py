"""`perfsweep judge`: one version of the user's code against another, for people and for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click
from rich.console import Console

from pipelines.commands.sweep import Display
from pipelines.commands.two_versions import TwoVersions
from pipelines.terminal import WIDTH
from pipelines.versions.repository import WORKTREE, Repository
from workloads.errors import ConfigError


def judge(words: Sequence[str], as_json: bool) -> int:
    """Judge the second of two versions against the first; the status says how that ended.

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
    versions = TwoVersions.of("judge", words[len(names) :])
    pair = (*names, WORKTREE)[:2] if names else _changed_last(versions.repository)
    base, head = map(versions.side, pair)
    if base.name == head.name:
        raise ConfigError(f"{base.name} is named twice; name two versions")
    answer = versions.compare(base, head, Display(Console(stderr=True, width=WIDTH, emoji=False)))
    click.echo(json.dumps(answer.as_json(), indent=2) if as_json else answer.line)
    return answer.status


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
