"""perfsweep judge: which versions it compares, how it answers, environments, and the comment made of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from environments import bare
from git_repository import git, state
from typed import ended
from versioned import scripted, work

from perfsweep.pipelines.commands import judge as module
from perfsweep.pipelines.execution.forks import ForkServer
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.report.version_answer import Answer, Side
from perfsweep.workloads.errors import ConfigError

SMALL = (
    *("workload=script", "workload.path=train.py", "measure.iterations=10", "measure.warmup_max=5"),
    *("measure.evidence_iterations=4", "measure.counting_iterations=2", "measure.servers=1"),
    *("measure.repeats=0", "measure.timed_parity=false"),
)
# A machine with others on it scatters by half; ten times the counted work is beyond that. Where they disturb
# every trial, no verdict is called.
DECIDING = (
    "measure.budget_s=90",
    "measure.precision=0.3",
    "measure.margin=0.2",
    "cluster.executor=inprocess",
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = scripted(tmp_path / "repo")
    git(root, "reset", "-q", "--hard", "comment")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def judge(*words: str) -> tuple[int, str, str]:
        return ended("judge", *words, f"runs={tmp_path / 'runs'}"), *capsys.readouterr()

    return judge


@pytest.mark.slow
def test_an_uncommitted_change_to_more_counted_work_is_slower_than_head_and_nothing_is_touched(
    root: Path, judge
) -> None:
    (root / "work.py").write_text(work(loops=100_000))
    before = state(root)
    status, said, _ = judge("--json", "--", *SMALL, *DECIDING)
    found = json.loads(said)
    assert found["low"] > 1 and found["results"] == "identical", found
    assert (status, found["verdict"]) == (SOME_FAILED, "slower") or "disturbed" in found["reason"], found
    assert (found["base"]["commit"], found["head"]["name"]) == (git(root, "rev-parse", "HEAD"), "worktree")
    assert state(root) == before


@pytest.mark.slow
def test_the_same_code_is_no_difference_without_a_measurement(root: Path, judge, tmp_path: Path) -> None:
    status, said, _ = judge(
        "base", "prose", "--json", "--", *SMALL, "measure.budget_s=90", "measure.margin=0.2"
    )
    found = json.loads(said)
    assert (status, found["verdict"], found["results"]) == (DONE, "no difference", "same code")
    assert (found["workload"], found["budget_s"], found["margin"]) == ("train", 90.0, 0.2)
    assert found["seconds"] > 0 and [found[side]["name"] for side in ("base", "head")] == ["base", "prose"]
    assert not (tmp_path / "runs").exists()


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
        (("a", "a"), {}, "a is named twice; name two versions"),
        (("a",), {"environment": True}, "judge --environment compares two: name both"),
        ((), {"repository": Repository(began="h" * 40)}, "nor commits beyond main; name what to compare"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(judged: Any, words: tuple, own: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        judged(*words, **own)


SAVES = """
import torch
import pace
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100_000):
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(step))
    loss = (model(x).squeeze() - x.sum(1)).pow(2).mean() * pace.SCALE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_library_that_changes_results_is_caught_and_both_environments_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judge
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SAVES)
    bare(tmp_path / "env-a", pace=("1.0", "SCALE = 1.0"))
    bare(tmp_path / "env-b", pace=("2.0", "SCALE = 1.001"))
    monkeypatch.setattr("perfsweep.pipelines.execution.servers.ForkServer", ForkServer)  # each has its own
    look = ("measure.look=true", "measure.rounds=1", "cluster.executor=inprocess")
    status, said, heard = judge("--environment", "env-a", "env-b", "--json", "--", *SMALL, *look)
    found = json.loads(said)
    assert found["compares"] == "environment" and found["head"] == {"name": "env-b", "commit": None}
    assert (status, found["verdict"], found["results"]) == (SOME_FAILED, "different results", "different")
    report = (Path(found["sweep"]) / "report.md").read_text()
    for text in (heard, report):
        assert "environment=env-a: Python" in text and "environment=env-b: Python" in text
        assert "packages that differ between environments: pace 1.0 / 2.0" in text


ANSWER = Answer(Side("main", "0" * 40), Side("worktree", None), "no difference", "same code", 0, 0.025)


def test_a_comment_goes_to_a_file_or_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "judge.json"
    file.write_text(json.dumps(ANSWER.as_json()))
    assert (
        ended("comment", str(file), f"--output={tmp_path}/comment.md") == 0 and capsys.readouterr().out == ""
    )
    assert ended("comment", str(file)) == 0
    said = capsys.readouterr().out
    assert said == (tmp_path / "comment.md").read_text() and "### perfsweep: no difference" in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "judge.json cannot be read (No such file or directory)"),
        ("", "judge.json is no JSON"),
        ('{"schema": "perfsweep.judge/2"}', "judge.json is no answer of perfsweep judge"),
    ],
)
def test_a_file_of_anything_else_is_one_sentence(
    tmp_path: Path, text: str | None, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "judge.json").write_text(text)
    assert ended("comment", f"{tmp_path}/judge.json") == 2
    said = capsys.readouterr()
    assert said.out == "" and sentence in said.err and "perfsweep judge --json" in said.err
    assert said.err.count("\n") == 1
