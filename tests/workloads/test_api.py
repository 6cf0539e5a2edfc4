"""The contract refuses what cannot be meant, in words that say what to write instead."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfsweep.workloads.api import (
    Baseline,
    Check,
    Claim,
    Context,
    Device,
    Evidence,
    Level,
    Numbers,
    Parity,
    Toggle,
    Workload,
)
from perfsweep.workloads.errors import ConfigError, ContractError

AMP = Toggle("amp", (Level("off"), Level("bf16")), "")
SLAB = Toggle("slab", (Level("all"), Level(8)), "", numbers=Numbers(1, 64))
SHARE = Toggle("share", (Level(0.5), Level(1)), "", numbers=Numbers(0.0, 1.0, integer=False))
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


# What is changed, and what the refusal says about it. An ellipsis leaves the member out.
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no Config": ({"Config": ...}, "Config must be a dataclass"),
    "Config is no dataclass": ({"Config": dict}, "Config must be a dataclass"),
    "no toggles": ({"toggles": ...}, "toggles must be a tuple"),
    "toggles are a list": ({"toggles": [AMP]}, "toggles must be a tuple"),
    "no checks": ({"checks": ...}, "checks must be a tuple"),
    "checks are a list": ({"checks": [Check("loss")]}, "checks must be a tuple"),
    "no setup": ({"setup": ...}, "setup() is missing"),
    "no step": ({"step": ...}, "step() is missing"),
    "no progress": ({"progress": ...}, "progress() is missing"),
    "no evidence": ({"evidence": ...}, "evidence() is missing"),
    "an unknown shape": ({"shape": "loop"}, "shape is 'loop', not 'steps' or 'job'"),
    "a job that never ends": ({"shape": "job", "reset": lambda self: None}, "a job needs done() and reset()"),
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
    "no baseline level beside numbers": (
        (Toggle("slab", (), "", numbers=Numbers(1)),),
        "toggle slab has fewer than two levels",
    ),
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
    "an unknown level is in conflict": (
        (Toggle("amp", (Level("off"), Level("on", conflicts={"slab": (65,)})), ""), SLAB),
        "amp=on: toggles.slab=65 is not a level of slab",
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
    "a memory without a bound": (
        claim(kind="memory"),
        "claim Report 3 is about memory and has neither low nor high",
    ),
    "bounds of nothing": (
        claim(low=1),
        "a predicate and has bounds without a figure, or a figure without bounds",
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


def test_one_level_is_enough_beside_numbers() -> None:
    rows = Toggle("rows", (Level(1),), "", numbers=Numbers(1))
    assert declare(toggles=(rows,)).toggles == (rows,)


def test_a_declared_class_may_be_extended() -> None:
    class Extended(declare()):  # type: ignore[misc]
        unit: ClassVar[str] = "row"

    assert Extended.unit == "row"


@pytest.mark.parametrize("method", ["setup", "step", "progress", "evidence"])
def test_an_abstract_method_says_which_one_is_missing(method: str) -> None:
    arguments = {"setup": (None, {}, None), "step": (None,)}.get(method, ())
    with pytest.raises(ContractError, match=f"does not define {method}"):
        getattr(Workload, method)(declare()(), *arguments)


@pytest.mark.parametrize("written, meant", [(True, "on"), (False, "off"), ("on", "on"), ("off", "off")])
def test_on_and_off_are_levels_although_yaml_reads_booleans(written: str | bool, meant: str) -> None:
    assert CACHE.level(written).value == meant


@pytest.mark.parametrize("written", [True, False])
def test_a_boolean_is_no_number(written: bool) -> None:
    with pytest.raises(ConfigError, match=r"toggles\.slab=(on|off) is not a level of slab"):
        SLAB.level(written)


@pytest.mark.parametrize("written", [8, "8", 8.0, "8.0", "8e0"])
def test_a_declared_number_may_be_written_in_any_way(written: Any) -> None:
    assert SLAB.level(written) is SLAB.levels[1]


@given(st.integers(1, 64))
def test_every_integer_in_range_is_a_level(number: int) -> None:
    assert SLAB.level(number).value == number


@given(st.one_of(st.integers(max_value=0), st.integers(min_value=65)))
def test_a_number_out_of_range_names_the_range(number: int) -> None:
    with pytest.raises(ConfigError, match="choose from: all, 8, or any integer from 1 to 64"):
        SLAB.level(number)


@pytest.mark.parametrize(
    "written", [1.5, "1.5", "nan", "inf", "-inf", math.nan, math.inf, "", "eight", "0x10"]
)
def test_what_is_no_integer_is_refused_in_words(written: Any) -> None:
    with pytest.raises(ConfigError, match="is not a level of slab"):
        SLAB.level(written)


@given(st.floats(0, 1))
def test_a_range_may_hold_fractions(number: float) -> None:
    assert SHARE.level(number).value == number


@pytest.mark.parametrize("written", [1.01, -0.01, "nan", math.inf])
def test_a_range_of_fractions_has_ends_too(written: Any) -> None:
    with pytest.raises(ConfigError, match="any number from 0 to 1"):
        SHARE.level(written)


@pytest.mark.parametrize("written", ["inf", math.inf, "nan"])
def test_a_range_without_an_upper_end_does_not_reach_infinity(written: Any) -> None:
    toggle = Toggle("share", (Level(0.5),), "", numbers=Numbers(0.0, integer=False))
    with pytest.raises(ConfigError, match=r"any number from 0$"):
        toggle.level(written)


def test_a_range_without_an_upper_end_says_so() -> None:
    assert str(Numbers(1)) == "any integer from 1"


def test_a_number_has_the_attributes_of_its_range() -> None:
    like = Level(0, Parity.STOCHASTIC, requires={"amp": ("bf16",)}, witness="rows")
    found = Toggle("rows", (Level(1),), "", numbers=Numbers(1, like=like)).level("17")
    assert (found.value, found.parity, found.requires, found.witness) == (
        17,
        Parity.STOCHASTIC,
        {"amp": ("bf16",)},
        "rows",
    )


def test_an_unknown_level_names_the_valid_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"^toggles\.amp=fp8 is not a level of amp; choose from: off, bf16$"
    ):
        AMP.level("fp8")


def test_a_conditional_baseline_needs_all_of_its_conditions() -> None:
    given_both = Baseline(
        "on", {"amp": ("bf16", "fp16"), "slab": (8,)}, device=lambda device: device.count > 1
    )
    toggle = Toggle("cache", CACHE.levels, "", baselines=(given_both,))
    two = Device(type="cuda", count=2)
    assert toggle.baseline({"amp": "bf16", "slab": 8}, two) == "on"
    assert toggle.baseline({"amp": "bf16", "slab": 8}, Device()) == "off"
    assert toggle.baseline({"amp": "off", "slab": 8}, two) == "off"
    assert toggle.baseline({"amp": "bf16"}, two) == "off"


def test_the_first_conditional_baseline_that_holds_wins() -> None:
    toggle = Toggle("amp", AMP.levels, "", baselines=(Baseline("bf16"), Baseline("off")))
    assert toggle.baseline({}, Device()) == "bf16"


@pytest.mark.parametrize("gpus, processes", [(0, 2), (1, 2), (2, 2), (4, 4)])
def test_a_level_for_each_gpu_grows_with_the_node(gpus: int, processes: int) -> None:
    assert Level("ddp", ranks=2, per_gpu=True).processes(Device(type="cuda", count=gpus)) == processes


@pytest.mark.parametrize("gpus", [0, 1, 4])
def test_other_levels_have_the_processes_they_declare(gpus: int) -> None:
    assert Level("split", ranks=2).processes(Device(type="cuda", count=gpus)) == 2
    assert Level("off").processes(Device(type="cuda", count=gpus)) == 1


def test_a_class_may_depend_on_the_configuration_and_the_other_levels() -> None:
    def loosened(config: Any, levels: Any) -> Parity | None:
        return Parity.TOLERANCE if config["half"] and levels["amp"] == "bf16" else None

    level = Level("sdpa", loosened=loosened)
    assert level.parity_with({"half": True}, {"amp": "bf16"}) is Parity.TOLERANCE
    assert level.parity_with({"half": True}, {"amp": "off"}) is Parity.EXACT
    assert level.parity_with({"half": False}, {"amp": "bf16"}) is Parity.EXACT


def test_what_a_level_does_not_declare_forbids_nothing() -> None:
    level = Level("on")
    assert level.refused(None, {}) is None
    assert level.unsupported(Device()) is None
    assert level.parity_with(None, {}) is Parity.EXACT


def test_optional_parts_of_a_workload_do_nothing_by_themselves() -> None:
    workload = declare()()
    assert (workload.done(), workload.counters(), workload.data_digest()) == (False, {}, "")
    assert workload.work().flops is None
    workload.reset()
    workload.close()


def test_a_trial_that_is_told_nothing_is_alone_on_its_node(tmp_path: Path) -> None:
    alone = Context(Device(), tmp_path, tmp_path)
    assert (alone.rank, alone.world, alone.local_rank, alone.local_world, alone.node) == (0, 1, 0, 1, 0)
    assert (alone.seed, alone.master, alone.memory_budget, alone.deadline) == (0, "127.0.0.1", None, None)
    assert alone.log({"loss": 1.0}) is None


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
