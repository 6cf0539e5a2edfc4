"""What a version is asked, and what is made of a process that does not answer."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from perfsweep.pipelines.plan import version_look
from perfsweep.pipelines.plan.version_look import Answer, Question, ask
from perfsweep.workloads.imports import OURS
from perfsweep.workloads.user_environment import INTERPRETER

QUESTION = Question({"name": "toys"}, ["amp"], {"type": "cpu"}, [{"key": "k", "choices": {}}], {"k": {}})


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, str]]:
    """Makes an interpreter of a shell script, which has noted what it was started with and asked."""
    monkeypatch.setenv("PYTHONPATH", "/theirs")

    def make(then: str) -> dict[str, str]:
        program = tmp_path / "python"
        note = f"echo $@ > {tmp_path}/words; env > {tmp_path}/env; read asked; echo $asked > {tmp_path}/asked"
        program.write_text(f"#!/bin/sh\n{note}\n{then}\n")
        program.chmod(0o755)
        return {INTERPRETER: str(program)}

    return make


def started_with(tmp_path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)


def test_a_version_is_asked_in_its_environment_with_its_code_first(
    python: Callable[[str], dict[str, str]], tmp_path: Path
) -> None:
    found = Answer(code="c", levels={"k": {"amp": "off"}}, by_exec=True)
    variables = {**python(f"echo '{json.dumps(vars(found))}'"), "PERFSWEEP_SOURCES": "/copies"}
    assert ask(QUESTION, tmp_path / "look", variables, ["/users"]) == found
    assert json.loads((tmp_path / "asked").read_text()) == vars(QUESTION)
    assert (tmp_path / "words").read_text() == "-m perfsweep.pipelines.plan.version_process\n"
    env = started_with(tmp_path)
    assert env["PYTHONPATH"] == os.pathsep.join([str(OURS), "/users", "/theirs"])
    assert (env["PYTHONSAFEPATH"], env["PERFSWEEP_SOURCES"]) == ("1", "/copies")


@pytest.mark.parametrize(
    ("then", "problem"),
    [
        ("sleep 600", "importing its code did not end within 0.3 s"),
        (
            "echo Trace >&2; echo ValueError: no >&2; exit 3",
            "importing its code ended the process with status 3: ValueError: no",
        ),
    ],
)
def test_whatever_goes_wrong_is_the_answers_problem(
    python: Callable[[str], dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    then: str,
    problem: str,
) -> None:
    monkeypatch.setattr(version_look, "TIMEOUT_S", 0.3 if "sleep" in then else 60.0)
    assert ask(QUESTION, tmp_path, python(then), []).problem == problem


def test_the_process_answers_one_question_and_a_module_that_prints_or_reads_disturbs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Loud:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            print('{loud}', sys.stdin.read())\n"
        "            raise OSError('libgomp: not found')\n"
        "sys.meta_path.insert(0, Loud())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = ask(QUESTION, tmp_path, {}, [])
    assert found.problem.startswith("torch cannot be imported: OSError: libgomp: not found; reinstall it")
    assert (tmp_path / "log.txt").read_text() == "{loud} \n"
