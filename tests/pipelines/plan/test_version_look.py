"""What a version is asked, and what is made of a process that does not answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.plan import version_look, version_process
from perfsweep.pipelines.plan.version_look import Answer, Question, arm_key, ask, python_path, start_of
from perfsweep.workloads.api import Level
from perfsweep.workloads.imports import OURS
from perfsweep.workloads.user_environment import INTERPRETER

QUESTION = Question({"name": "toys"}, ["amp"], {"type": "cpu"}, [{"key": "k", "choices": {}}], {"k": {}})


def test_an_arm_has_one_key_in_whatever_order_its_levels_are() -> None:
    assert arm_key({"b": 1, "a": "x"}) == arm_key({"a": "x", "b": 1}) == '{"a": "x", "b": 1}'
    assert arm_key({"a": "1"}) != arm_key({"a": 1})


def test_what_must_be_known_before_processes_start() -> None:
    levels = {"one": Level("on", env={"A": "1"}, ranks=2), "other": Level("on", env={"B": "2"}, ranks=4)}
    cls: Any = SimpleNamespace(ranks=1, levels_of=lambda chosen: {name: levels[name] for name in chosen})
    assert start_of(cls, {"one": "on", "other": "on"}) == {"env": {"A": "1", "B": "2"}, "ranks": 4}
    assert start_of(cls, {}) == {"env": {}, "ranks": 1}
    cls.ranks = 8
    assert start_of(cls, {"one": "on"})["ranks"] == 8


@pytest.mark.parametrize(("value", "folders"), [(None, []), ("", []), ("a::b", ["a", "b"])])
def test_folders_that_somebody_has_imported_from(
    value: str | None, folders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if value is not None:
        monkeypatch.setenv("PYTHONPATH", value)
    assert python_path() == folders


class Process:
    """Stands where the version's process runs."""

    def __init__(self, answer: Answer | None = None, late: bool = False, said: bytes = b"") -> None:
        self.answer, self.late, self.said = answer, late, said

    def __call__(self, command: list[str], **options: Any) -> Any:
        self.command, self.options = command, options
        if self.late:
            raise subprocess.TimeoutExpired(command, options["timeout"])
        if self.answer:
            (Path(command[-1]) / "answer.json").write_text(json.dumps(vars(self.answer)))
        return SimpleNamespace(returncode=3, stderr=self.said)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    def stand(process: Process) -> Process:
        monkeypatch.setattr(version_look.subprocess, "run", process)
        return process

    monkeypatch.setenv("PYTHONPATH", "/theirs")
    return stand


def test_a_version_is_asked_in_its_environment_with_its_code_first(run: Any, tmp_path: Path) -> None:
    found = Answer(code="c", levels={"k": {"amp": "off"}}, by_exec=True)
    process = run(Process(found))
    variables = {INTERPRETER: "/env/bin/python", "PERFSWEEP_SOURCES": "/copies"}
    assert ask(QUESTION, tmp_path / "look", variables, ["/users"]) == found
    assert json.loads((tmp_path / "look/question.json").read_text()) == vars(QUESTION)
    place = str(tmp_path / "look")
    assert process.command == ["/env/bin/python", "-m", "perfsweep.pipelines.plan.version_process", place]
    env = process.options["env"]
    assert env["PYTHONPATH"] == os.pathsep.join([str(OURS), "/users", "/theirs"])
    assert (env["PYTHONSAFEPATH"], env["PERFSWEEP_SOURCES"]) == ("1", "/copies")
    assert process.options["timeout"] == 300


def test_without_an_environment_of_its_own_this_interpreter_answers(run: Any, tmp_path: Path) -> None:
    process = run(Process(Answer()))
    ask(QUESTION, tmp_path, {"PYTHONPATH": "/whole"}, [])
    assert process.command[0] == sys.executable
    assert process.options["env"]["PYTHONPATH"] == "/whole", "what the version asks for wins"


@pytest.mark.parametrize(
    ("process", "problem"),
    [
        (Process(late=True), "importing its code did not end within 300 s"),
        (
            Process(said=b"Trace\nValueError: no\n"),
            "importing its code ended the process with status 3: ValueError: no",
        ),
        (Process(), "importing its code ended the process with status 3: "),
    ],
)
def test_whatever_goes_wrong_is_the_answers_problem(
    run: Any, tmp_path: Path, process: Process, problem: str
) -> None:
    run(process)
    assert ask(QUESTION, tmp_path, {}, []).problem == problem


def broken(name: str) -> Any:
    if name == "torch":
        raise OSError("libgomp:\n  not found")
    return name


def test_a_broken_installation_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_process.importlib, "import_module", broken)
    problem = version_process.answer(QUESTION).problem
    assert (
        problem == f"torch cannot be imported: OSError: libgomp: not found; install it anew in {sys.prefix}"
    )


def test_the_process_reads_its_question_and_writes_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "question.json").write_text(json.dumps(vars(QUESTION)))
    monkeypatch.setattr(version_process, "answer", lambda asked: Answer(problem=asked.workload["name"]))
    version_process.main(tmp_path)
    assert json.loads((tmp_path / "answer.json").read_text())["problem"] == "toys"
