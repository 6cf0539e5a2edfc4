"""The contract refuses what cannot be meant, in words that say what to write instead."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from perfsweep.workloads import api
from perfsweep.workloads.api import Baseline, Check, Claim, Evidence, Level, Numbers, Toggle, Workload
from perfsweep.workloads.errors import ConfigError, ContractError

AMP = Toggle("amp", (Level("off"), Level("bf16")), "")
SLAB = Toggle("slab", (Level("all"), Level(8)), "", numbers=Numbers(1, 64))
CACHE = Toggle("cache", (Level("off"), Level("on")), "")


def declare(**changed: Any) -> type[Workload]:
    """A workload class that keeps the contract, but for what is changed."""

    @dataclass
    class Config:
        size: int = 1

    def setup(self: Any, config: Any, levels: Any, context: Any) -> None: ...

    def step(self: Any, clock: Any) -> None: ...

    def progress(self: Any) -> float:
        return 0.0

    def evidence(self: Any) -> Evidence:
        return Evidence()

    kept = {
        "Config": Config,
        "toggles": (AMP, SLAB),
        "checks": (Check("loss"),),
        "setup": setup,
        "step": step,
        "progress": progress,
        "evidence": evidence,
    }
    members = {name: value for name, value in {**kept, **changed}.items() if value is not ...}
    return type("Declared", (Workload,), members)


def claim(arms: tuple[dict[str, Any], ...] = (), **changed: Any) -> Claim:
    return Claim(
        **{"text": "", "source": "Report", "section": "3", "arms": arms, "kind": "predicate", **changed}
    )


def test_a_complete_declaration_is_accepted() -> None:
    assert declare().toggles == (AMP, SLAB)


def test_a_process_is_the_only_one_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    told = asdict(api.Context(api.Device(), tmp_path, tmp_path))
    places = ("seed", "rank", "world", "node", "local_rank", "local_world", "master", "deadline")
    assert [told[name] for name in places] == [0, 0, 1, 0, 0, 1, "127.0.0.1", None]


# What is changed, and what the refusal says about it. An ellipsis leaves the member out.
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no Config": ({"Config": ...}, "Config must be a dataclass"),
    "Config is no dataclass": ({"Config": dict}, "Config must be a dataclass"),
    "toggles are a list": ({"toggles": [AMP]}, "toggles must be a tuple"),
    "checks are a list": ({"checks": [Check("loss")]}, "checks must be a tuple"),
    "no progress": ({"progress": ...}, "progress() is missing"),
    "no evidence": ({"evidence": ...}, "evidence() is missing"),
    "an unknown shape": ({"shape": "loop"}, "shape is 'loop', not 'steps' or 'job'"),
    "a job that cannot start again": (
        {"shape": "job", "done": lambda self: True},
        "a job needs done() and reset()",
    ),
    "a value in the place of a method": ({"done": True}, "its attribute done hides the method of that name"),
    "a property in the place of a method": (
        {"processes": property(lambda self: 2)},
        "its attribute processes hides the method of that name",
    ),
}

BROKEN_TOGGLES: dict[str, tuple[tuple[Toggle, ...], str]] = {
    "one name twice": ((AMP, AMP), "two toggles share a name"),
    "one level": ((Toggle("amp", (Level("off"),), ""),), "toggle amp has fewer than two levels"),
    "one level twice": ((Toggle("amp", (Level("off"), Level("off")), ""),), "toggle amp repeats a level"),
    "a number twice, once as text": (
        (Toggle("slab", (Level(8), Level("8")), ""),),
        "toggle slab repeats a level",
    ),
    "an unknown toggle is required": (
        (Toggle("amp", (Level("off"), Level("on", requires={"slap": (8,)})), ""), SLAB),
        "amp=on names the unknown toggle slap",
    ),
    "an unknown level is required": (
        (Toggle("amp", (Level("off"), Level("on", requires={"slab": ("none",)})), ""), SLAB),
        "amp=on: toggles.slab=none is not a level of slab; choose from: all, 8, or any integer from 1 to 64",
    ),
    "a required level is no tuple": (
        (Toggle("amp", (Level("off"), Level("on", requires={"slab": "all"})), ""), SLAB),  # type: ignore[dict-item]
        "amp=on must give the levels of slab as a tuple",
    ),
    "numbers require an unknown toggle": (
        (Toggle("slab", (Level("all"),), "", numbers=Numbers(1, like=Level(0, requires={"amd": ("on",)}))),),
        "slab=0 names the unknown toggle amd",
    ),
    "a baseline depends on an unknown toggle": (
        (Toggle("amp", (Level("off"), Level("on")), "", baselines=(Baseline("on", {"slap": (8,)}),)),),
        "a baseline of amp names the unknown toggle slap",
    ),
    "a baseline is no level": (
        (Toggle("amp", (Level("off"), Level("on")), "", baselines=(Baseline("fp8"),)),),
        "a baseline of amp: toggles.amp=fp8 is not a level of amp; choose from: off, on",
    ),
    "a bound for no check": (
        (Toggle("amp", (Level("off"), Level("on", bounds={"los": 1e-2})), ""),),
        "toggle amp bounds los, which is no check",
    ),
    "numbers have a bound for no check": (
        (Toggle("slab", (Level("all"),), "", numbers=Numbers(1, like=Level(0, bounds={"los": 1e-2}))),),
        "toggle slab bounds los, which is no check",
    ),
}

BROKEN_CLAIMS: dict[str, tuple[Claim, str]] = {
    "an unknown toggle": (claim(({"slap": 8},)), "claim Report 3 names the unknown toggle slap"),
    "an unknown level": (
        claim(({"amp": "fp8"},)),
        "claim Report 3: toggles.amp=fp8 is not a level of amp; choose from: off, bf16",
    ),
    "an unknown level to compare with": (
        claim(({"amp": "bf16"},), against={"slab": 99}),
        "toggles.slab=99 is not a level of slab",
    ),
    "a size without a word": (claim(kind="qualitative"), "claim Report 3 is qualitative and has no word"),
    "a speed without a bound": (
        claim(kind="speedup"),
        "claim Report 3 is about speedup and has neither low nor high",
    ),
    "a figure without bounds": (claim(figure="passes"), "a predicate and has bounds without a figure"),
    "bounds the wrong way round": (claim(kind="speedup", low=3, high=2), "claim Report 3 has low above high"),
}


@pytest.mark.parametrize("changed, said", BROKEN.values(), ids=BROKEN)
def test_a_broken_class_is_refused_when_it_is_created(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ContractError) as refusal:
        declare(**changed)
    assert said in str(refusal.value)
    assert "Declared" in str(refusal.value)


@pytest.mark.parametrize("toggles, said", BROKEN_TOGGLES.values(), ids=BROKEN_TOGGLES)
def test_a_toggle_that_cannot_be_meant_is_refused(toggles: tuple[Toggle, ...], said: str) -> None:
    with pytest.raises(ContractError) as refusal:
        declare(toggles=toggles)
    assert said in str(refusal.value)


@pytest.mark.parametrize("broken, said", BROKEN_CLAIMS.values(), ids=BROKEN_CLAIMS)
def test_a_claim_that_cannot_be_ruled_is_refused(broken: Claim, said: str) -> None:
    with pytest.raises(ContractError) as refusal:
        declare(claims=(broken,))
    assert said in str(refusal.value)


def test_all_problems_of_a_class_are_told_at_once() -> None:
    with pytest.raises(ContractError, match=r"setup\(\) is missing; step\(\) is missing"):
        declare(setup=..., step=...)


def test_a_job_that_ends_and_starts_again_is_accepted() -> None:
    assert declare(shape="job", done=lambda self: True, reset=lambda self: None).shape == "job"


@pytest.mark.parametrize("method", ["setup", "step", "progress", "evidence"])
def test_an_abstract_method_says_which_one_is_missing(method: str) -> None:
    arguments = {"setup": (None, {}, None), "step": (None,)}.get(method, ())
    with pytest.raises(ContractError, match=f"does not define {method}"):
        getattr(Workload, method)(declare()(), *arguments)


@pytest.mark.parametrize("written, meant", [(True, "on"), (False, "off"), ("on", "on"), ("off", "off")])
def test_on_and_off_are_levels_although_yaml_reads_booleans(written: str | bool, meant: str) -> None:
    assert CACHE.level(written).value == meant


@pytest.mark.parametrize("written", ["inf", math.inf, "nan"])
def test_a_range_without_an_upper_end_does_not_reach_infinity(written: Any) -> None:
    toggle = Toggle("share", (Level(0.5),), "", numbers=Numbers(0.0, integer=False))
    with pytest.raises(ConfigError, match=r"any number from 0$"):
        toggle.level(written)


def test_optional_parts_of_a_workload_do_nothing_by_themselves() -> None:
    workload = declare()()
    assert (workload.done(), workload.counters(), workload.data_digest()) == (False, {}, "")
    assert workload.work().flops is None
    workload.reset()
    workload.close()


FORKED = (AMP, Toggle("threads", (Level(0), Level(1, env={"OMP_NUM_THREADS": "1"}), Level(2, ranks=2)), ""))


@pytest.mark.parametrize(
    ("changed", "levels", "needed"),
    [
        ({}, {"amp": "bf16", "threads": 0}, False),
        ({}, {"amp": "bf16", "threads": 1}, True),
        ({}, {"amp": "off", "threads": 2}, True),
        ({"ranks": 2}, {"amp": "off", "threads": 0}, True),
        ({"start": "exec"}, {"amp": "off", "threads": 0}, True),
    ],
)
def test_a_trial_is_forked_unless_its_imports_depend_on_it(
    changed: dict[str, Any], levels: dict[str, Any], needed: bool
) -> None:
    assert declare(toggles=FORKED, **changed).needs_exec(levels) is needed
