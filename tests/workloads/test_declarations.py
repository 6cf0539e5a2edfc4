"""Values that declarations are made of: numbers, levels, baselines, and what claims speak of."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.workloads.declarations import (
    Baseline,
    Claim,
    Device,
    Level,
    Numbers,
    Parity,
    Toggle,
    as_number,
)
from perfsweep.workloads.errors import ConfigError


@pytest.mark.parametrize(
    ("numbers", "inside", "outside"),
    [
        (Numbers(2), [2, 3, 1e9, 2.0], [1, 0, -2, 2.5, "2", "all"]),
        (Numbers(2, 4), [2, 3, 4], [1, 5, 2.5]),
        (Numbers(0.5, 1.5, integer=False), [0.5, 1.0, 1.5], [0.4, 1.6, "1"]),
    ],
)
def test_numbers_from_an_end_to_another_are_levels(numbers: Numbers, inside: list, outside: list) -> None:
    assert all(numbers.holds(value) for value in inside)
    assert not any(numbers.holds(value) for value in outside)


def test_a_number_is_like_its_pattern_and_may_be_so_many_ranks() -> None:
    like = Level(0, Parity.TOLERANCE, witness="pieces")
    assert Numbers(1, like=like).level(7) == Level(7, Parity.TOLERANCE, witness="pieces")
    assert Numbers(1, like=like, ranks=True).level(7).ranks == 7


@pytest.mark.parametrize(
    ("text", "number"), [("8", 8), ("0.5", 0.5), ("1e3", 1000), ("inf", None), ("nan", None), ("all", None)]
)
def test_a_text_writes_a_finite_number_or_none(text: str, number: float | None) -> None:
    found = as_number(text)
    assert found == number
    assert isinstance(found, int) == (number is not None and number == int(number))


SLAB = Toggle("slab", (Level("all"), Level(8), Level("on")), "", numbers=Numbers(4, 64))


@pytest.mark.parametrize(
    ("given", "value"), [("all", "all"), (8, 8), ("8", 8), ("8.0", 8), ("16", 16), (64, 64), (True, "on")]
)
def test_a_level_is_found_however_it_is_written(given: Any, value: Any) -> None:
    assert SLAB.level(given).value == value


@pytest.mark.parametrize("given", ["some", 3, 65, 4.5, False])
def test_what_is_no_level_is_told_with_those_that_are(given: Any) -> None:
    with pytest.raises(
        ConfigError, match="is not a level of slab; choose from: all, 8, on, or any integer from 4"
    ):
        SLAB.level(given)


GPUS = Device(type="cuda", count=4)


@pytest.mark.parametrize(
    ("level", "here", "there"),
    [
        (Level("x", ranks=2), 2, 2),
        (Level("x", ranks=2, per_gpu=True), 2, 4),
        (Level("x", ranks=8, per_gpu=True), 8, 8),
    ],
)
def test_processes_of_a_level(level: Level, here: int, there: int) -> None:
    assert (level.processes(Device()), level.processes(GPUS)) == (here, there)


def test_a_class_may_be_loosened() -> None:
    level = Level("x", loosened=lambda config, levels: Parity.TOLERANCE if levels["amp"] == "on" else None)
    assert level.parity_with(None, {"amp": "on"}) is Parity.TOLERANCE
    assert level.parity_with(None, {"amp": "off"}) is Parity.EXACT


@pytest.mark.parametrize(
    ("levels", "device", "value"),
    [
        ({"solver": "naive"}, Device(), "a"),
        ({}, Device(), "a"),
        ({"solver": "late"}, Device(), "b"),
        ({"solver": "late"}, GPUS, "b"),
        ({"solver": "naive"}, GPUS, "c"),
    ],
)
def test_the_first_baseline_that_fits_is_it(levels: dict[str, str], device: Device, value: str) -> None:
    others = (Baseline("b", {"solver": ("late", "later")}), Baseline("c", device=lambda one: one.count > 1))
    toggle = Toggle("stop", tuple(map(Level, "abc")), "", baselines=others)
    assert toggle.baseline(levels, device) == value


@pytest.mark.parametrize(
    ("capability", "below"), [(None, False), ((8, 0), True), ((8, 9), False), ((9, 0), False), ((7, 9), True)]
)
def test_a_capability_that_is_not_known_is_below_none(capability: Any, below: bool) -> None:
    assert Device(capability=capability).below(8, 9) == below


def test_a_claim_speaks_of_configurations_of_its_setting() -> None:
    claim = Claim("x", "s", "1", (), setting={"data": ("full", "half"), "slabs": (None,)})
    config = SimpleNamespace(data="half", slabs=None)
    assert claim.speaks_of(config)
    assert not claim.speaks_of(SimpleNamespace(data="half", slabs=2))
    assert not claim.speaks_of(SimpleNamespace(data="other", slabs=None))
    assert Claim("x", "s", "1", ()).speaks_of(config)


def test_toggles_and_claims_of_the_studies_are_read_without_torch_and_numpy() -> None:
    names = [f"{name}.variants" for name in ("probe1d", "spd", "prover", "latentwire")]
    names += ["digits.declaration"]
    names += [f"{name}.claims" for name in ("probe1d", "spd", "prover", "latentwire")]
    modules = ", ".join(f"perfsweep.workloads.{name}" for name in names)
    code = f"import sys, {modules}; print({{'torch', 'numpy'}} & sys.modules.keys())"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
