"""Arms over versions: what changed since the version before, and what is compared over all of them."""

from __future__ import annotations

import math

import pytest

from perfsweep.pipelines.analysis.across.baselines import Baseline, Change
from perfsweep.pipelines.analysis.across.version_history import arm_history, direction, history
from perfsweep.workloads.errors import ConfigError

WANDER = (0.0, 0.01, -0.01, 0.02, -0.02)


def rounds(time: float, drift: float = 0.0) -> dict[str, float]:
    return {f"p000-{n}": time * math.exp(one + drift * n) for n, one in enumerate(WANDER)}


def version(sweep: str, fast: float | None = 1.0, slow: float = 2.0, **fields: object) -> Baseline:
    values = {
        "workload": "toy",
        "unit": "pair",
        "config": "{}",
        "method": "m",
        "data": "",
        "device": "cpu",
        "torch": "2.13",
        "commit": f"c{sweep}",
        "reference": "naive",
        "rounds": {"naive": rounds(slow), **({} if fast is None else {"fast": rounds(fast)})},
        **fields,
    }
    return Baseline(sweep=sweep, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "relative", "word"),
    [
        (Change("a", 1.2, 1.051, 1.3, None), False, "slower"),
        (Change("a", 1.2, 1.05, 1.3, None), False, ""),  # the interval begins on the margin
        (Change("a", 0.9, 0.8, 0.95, None), False, "faster"),
        (Change("a", 0.9, 0.8, 1 / 1.05, None), False, ""),  # as far down as 5 % is up
        (Change("a", 1.0, 0.5, 2.0, None), False, ""),
        (Change("a", 1.2, None, None, None), False, ""),
        (Change("a", 1.2, 1.1, 1.3, (0.9, 0.8, 0.95)), True, "faster"),
        (Change("a", 0.9, 0.8, 0.95, (1.2, 1.1, 1.3)), True, "slower"),
        (Change("a", 1.2, 1.1, 1.3, None), True, ""),
    ],
)
def test_a_change_goes_some_way_where_its_interval_lies_beyond_the_margin(
    change: Change, relative: bool, word: str
) -> None:
    assert direction(change, 0.05, relative=relative) == word


def test_each_version_is_compared_with_the_one_before_that_has_the_arm() -> None:
    found = arm_history([version("1", 1.0), version("2", None), version("3", 1.2), version("4", 0.6)], "fast")
    assert [(one.sweep, one.commit, one.direction) for one in found.versions] == [
        ("1", "c1", ""),
        ("3", "c3", "slower"),
        ("4", "c4", "faster"),
    ]
    first, second, third = found.versions
    assert first.change is None and first.moved == () and not first.other_machine
    assert second.change is not None and second.change.ratio == pytest.approx(1.2)
    assert second.moved == ("commit: c1 -> c3",)
    assert (third.ns_per_unit, third.rounds) == (pytest.approx(0.6), 5)
    assert found.slower
    assert not arm_history([version("1"), version("2", 0.5)], "fast").slower


def test_the_margin_decides_what_is_slower() -> None:
    both = [version("1", 1.0), version("2", 1.2)]
    assert arm_history(both, "fast", 0.05).versions[1].direction == "slower"
    assert arm_history(both, "fast", 0.3).versions[1].direction == ""


def test_across_devices_only_the_ratio_to_the_reference_goes_anywhere() -> None:
    found = arm_history([version("1", 1.0), version("2", 5.0, 10.0, device="other")], "fast").versions[1]
    assert (found.other_machine, found.direction) == (True, "")
    found = arm_history([version("1", 1.0), version("2", 8.0, 10.0, device="other")], "fast").versions[1]
    assert found.direction == "slower"


def test_all_arms_of_the_newest_version_are_followed_unless_some_are_named() -> None:
    both = [version("1"), version("2", rounds={"naive": rounds(2.0), "new": rounds(1.0)})]
    found = history(both)
    assert [one.arm for one in found.arms] == ["naive", "new"]
    assert (found.unit, found.reference, found.margin, found.interleaved, found.versions) == (
        "pair",
        "naive",
        0.05,
        False,
        2,
    )
    assert [one.arm for one in history(both, ["fast"], 0.1).arms] == ["fast"]


def test_an_arm_that_no_version_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        ConfigError, match=r"^--arm none is in none of these sweeps; choose from: fast, naive$"
    ):
        arm_history([version("1"), version("2")], "none")


OTHER = {"device": "other"}


@pytest.mark.parametrize(
    ("versions", "arm", "reason"),
    [
        ([version(str(n)) for n in range(9)], "fast", "fewer than 10 versions (9)"),
        ([version(str(n)) for n in range(10)], "fast", ""),
        ([*(version(str(n)) for n in range(9)), version("9", **OTHER)], "fast", ""),
        (
            [*(version(str(n)) for n in range(9)), version("9", **OTHER)],
            "naive",
            "the devices differ, and it is the baseline",
        ),
        (
            [*(version(str(n)) for n in range(9)), version("9", reference="fast", **OTHER)],
            "naive",
            "the devices differ, and not every version measured it with the same baseline",
        ),
        (
            [version("0", rounds={"fast": rounds(1.0)}), *(version(str(n), **OTHER) for n in range(1, 10))],
            "fast",
            "the devices differ, and not every version measured it with the same baseline",
        ),
    ],
)
def test_change_points_are_not_looked_for_where_nothing_could_be_told(
    versions: list[Baseline], arm: str, reason: str
) -> None:
    found = arm_history(versions, arm)
    assert found.reason == reason
    assert (found.points is None) is bool(reason)


def test_where_a_level_begins_stands_by_how_much_it_lies_off_the_one_before() -> None:
    found = arm_history([version(str(n), 1.0 if n < 6 else 1.5) for n in range(12)], "fast")
    assert [place for place, one in enumerate(found.versions) if one.level] == [6]
    assert found.versions[6].level == pytest.approx(1.5, rel=1e-6)


def test_times_are_compared_on_one_device_and_ratios_to_the_reference_on_several() -> None:
    series = arm_history([version(str(n), 3.0, 2.0) for n in range(10)], "fast").series
    assert not series.beside_reference
    assert series.values == pytest.approx([math.log(3.0)] * 10)
    assert series.low[0] == pytest.approx(math.log(3.0) - 0.01)
    assert series.high[0] == pytest.approx(math.log(3.0) + 0.01)
    several = [*(version(str(n), 3.0, 2.0) for n in range(9)), version("9", 9.0, 6.0, device="other")]
    beside = arm_history(several, "fast").series
    assert beside.beside_reference
    assert beside.values == pytest.approx([math.log(1.5)] * 10)
