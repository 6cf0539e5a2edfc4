"""Which two versions `perfsweep judge` compares, and how it answers."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.commands import judge as module
from perfsweep.pipelines.report.version_answer import Answer, Side
from perfsweep.workloads.errors import ConfigError


class Repository:
    """A branch: what of it is not committed, and where it began."""

    root = "repo"

    def __init__(self, dirty: bool = False, began: str | None = "b" * 40, main: str | None = "main") -> None:
        self.is_dirty, self.began, self.default_branch = dirty, began, main

    def merge_base(self, one: str, other: str) -> str | None:
        return self.began if (one, other) == ("main", "HEAD") else None

    def commit(self, name: str) -> str:
        return "h" * 40


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Judges in a repository: the names that were compared, and the status."""

    def judge(*words: str, repository: Any = None, as_json: bool = False, environment: bool = False) -> Any:
        compared = list[str]()

        def compare(base: Side, head: Side, said: Any) -> Answer:
            compared.extend([base.name, head.name])
            return Answer(base, head, "slower", "identical", 1, 0.025)

        versions = SimpleNamespace(
            commits=repository or Repository(), side=lambda name: Side(name, None), compare=compare
        )
        of = SimpleNamespace(of=lambda command, words, commits: versions)
        monkeypatch.setattr(module, "TwoVersions", of)
        return compared, module.judge(words, as_json, environment)

    return judge


@pytest.mark.parametrize(
    ("words", "repository", "sides"),
    [
        (("v1", "v2", "workload=x"), None, ["v1", "v2"]),
        (("v1", "workload=x"), None, ["v1", "worktree"]),
        (("workload=x",), Repository(dirty=True), ["HEAD", "worktree"]),
        (("workload=x",), Repository(), ["b" * 12, "HEAD"]),
    ],
    ids=["both", "against the checkout", "what is not committed", "the branch"],
)
def test_versions_are_those_named_or_what_was_changed_last(
    judged: Any, words: tuple, repository: Any, sides: list, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judged(*words, repository=repository) == (sides, 1)
    assert capsys.readouterr().out == f"slower: {sides[1]} against {sides[0]}; results identical\n"


def test_a_program_gets_an_object(judged: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged("a", "b", as_json=True, environment=True) == (["a", "b"], 1)
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["compares"], found["head"]["name"]) == ("slower", "environment", "b")


@pytest.mark.parametrize(
    ("words", "own", "says"),
    [
        (("a", "b", "c"), {}, "judge takes at most BASE and HEAD"),
        (("a", "workload=x", "b"), {}, "judge takes at most BASE and HEAD"),
        (("a", "a"), {}, "a is named twice; name two versions"),
        (("a",), {"environment": True}, "judge --environment compares two: name both"),
        ((), {"repository": Repository(began="h" * 40)}, "nor commits beyond main; name what to compare"),
        ((), {"repository": Repository(main=None)}, "nor commits beyond a main branch; name"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(judged: Any, words: tuple, own: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        judged(*words, **own)


def test_options_are_handed_on_without_the_names_and_environments_need_no_repository(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[tuple[Any, ...]]()

    def of(command: str, words: Any, commits: bool) -> None:
        asked.append((command, *words, commits))
        raise ConfigError("enough")

    monkeypatch.setattr(module, "TwoVersions", SimpleNamespace(of=of))
    for environment in (False, True):
        with pytest.raises(ConfigError, match="enough"):
            module.judge(("a", "b", "workload=x", "measure.rounds=3"), False, environment)
    options = ("judge", "workload=x", "measure.rounds=3")
    assert asked == [(*options, True), (*options, False)]
