"""Which arms a version can run, asked of the code that is imported here."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from toys.spinner import Spinner

from perfsweep.pipelines.plan import version_reply
from perfsweep.pipelines.plan.version_look import Answer, Question, start_of

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
    return version_reply.answer(Question(**{**given, **own}))


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
    monkeypatch.setattr(version_reply, "torch_build", lambda: build)
    found = asked({}, device={"type": "cuda", "capability": [9, 0]})
    assert found.problem == "its torch 2.13.0+cpu is built without CUDA"
    assert asked({}).problem == ""


def test_modules_of_the_checkout_are_strangers_to_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_reply, "_strangers", lambda: iter(["a", "b", "c", "d"]))
    found = asked({})
    assert found == dataclasses.replace(
        Answer(), problem="it imports a, b, c from the checkout and not from the version"
    )
