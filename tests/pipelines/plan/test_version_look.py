"""What a version is asked and answers, and what is made of a process that does not."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from toys.spinner import Spinner

from perfsweep.pipelines.plan import version_look
from perfsweep.pipelines.plan.version_look import Answer, Question, ask, start_of
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
    assert (tmp_path / "words").read_text() == "-m perfsweep.pipelines.plan.version_look\n"
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


TOY = "toys.spinner:Spinner"
NAMES = ["work", "sign", "slab", "variable"]


def known(choices: dict[str, Any]) -> dict[str, Any]:
    """Those of the levels that the workload has."""
    values = {"work": ("double", "single"), "variable": ("off", "on")}
    return {name: value for name, value in choices.items() if value in values.get(name, ())}


def asked(*arms: dict[str, Any], **own: Any) -> Answer:
    every = [{"key": str(number), "choices": one} for number, one in enumerate(arms)]
    space = {one.name: one.levels[0].value for one in Spinner.toggles if one.name in NAMES}
    starts = {one["key"]: start_of(Spinner, {**space, **known(one["choices"])}) for one in every}
    given = {
        "workload": {"name": TOY, "size": 32},
        "toggles": NAMES,
        "device": {"type": "cpu"},
        "arms": every,
        "starts": starts,
    }
    return version_look.answer(Question(**{**given, **own}))


def test_an_arm_has_all_levels_as_the_version_declares_them() -> None:
    found = asked({}, {"work": "single"})
    assert found.problem == "" and found.problems == {}
    assert found.levels["1"]["work"] == "single" and found.levels["0"]["work"] == "double"
    assert set(found.levels["0"]) == {one.name for one in Spinner.toggles}
    assert (found.config["size"], found.config["products"]) == (32, 40)
    assert found.code and found.installed and found.keys["torch"] and "torch" in found.packages
    assert not found.by_exec


def test_an_arm_that_is_started_otherwise_is_not_run() -> None:
    found = asked({"work": "single"}, starts={"0": {"env": {"A": "1"}, "ranks": 1}})
    says = "its levels set other variables, or take another number of processes, than the checkout's"
    assert found.problems == {"0": says}


@pytest.mark.parametrize(
    ("workload", "says"),
    [({"name": "toys.nowhere:Spinner"}, "toys.nowhere"), ({"name": TOY, "sise": 3}, "sise")],
)
def test_a_version_that_has_not_got_the_workload_says_so(workload: dict, says: str) -> None:
    found = asked(workload=workload)
    assert says in found.problem and found.levels == {}


def test_a_torch_without_cuda_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    build = SimpleNamespace(cuda=None, version="2.13.0+cpu")
    monkeypatch.setattr(version_look, "torch_build", lambda: build)
    found = asked({}, device={"type": "cuda", "capability": [9, 0]})
    assert found.problem == "its torch 2.13.0+cpu is built without CUDA"
    assert asked({}).problem == ""


def test_modules_of_the_checkout_are_strangers_to_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_look, "_strangers", lambda: iter(["a", "b", "c", "d"]))
    found = asked({})
    assert found == dataclasses.replace(
        Answer(), problem="it imports a, b, c from the checkout and not from the version"
    )
