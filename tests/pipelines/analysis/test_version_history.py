"""Sweeps and versions against one another: what became slower, and what must not be compared."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from measured import baseline, change, cost, simulated
from planned_sweeps import manifest as manifest_of
from scipy import stats

from perfsweep.pipelines.analysis.baselines import (
    Baseline,
    Change,
    baseline_of,
    compare_baselines,
    load,
    welch,
)
from perfsweep.pipelines.analysis.collect import collect
from perfsweep.pipelines.analysis.version_history import (
    ArmHistory,
    CommitVersions,
    arm_history,
    commit_versions,
    history,
)
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.store.provenance import Provenance
from perfsweep.pipelines.store.records import Arm, Manifest, SweepFolder, Version
from perfsweep.workloads.errors import ConfigError, RecordError

WANDER = (0.0, 0.01, -0.01, 0.02, -0.02)


def rounds(time: float, drift: float = 0.0) -> dict[str, float]:
    return {f"p000-{n}": time * math.exp(one + drift * n) for n, one in enumerate(WANDER)}


def version(sweep: str, fast: float | None = 1.0, slow: float = 2.0, **fields: Any) -> Baseline:
    usual = {"naive": rounds(slow), **({} if fast is None else {"fast": rounds(fast)})}
    return baseline(fields.pop("rounds", usual), sweep=sweep, commit=f"c{sweep}", **fields)


@pytest.mark.parametrize(
    ("change", "relative", "word"),
    [
        (Change("a", 1.2, 1.051, 1.3, None), False, "slower"),
        (Change("a", 1.2, 1.05, 1.3, None), False, ""),  # the interval begins on the margin
        (Change("a", 0.9, 0.8, 0.95, None), False, "faster"),
        (Change("a", 0.9, 0.8, 1 / 1.05, None), False, ""),  # as far down as 5 % is up
        (Change("a", 1.2, None, None, None), False, ""),
        (Change("a", 1.2, 1.1, 1.3, (0.9, 0.8, 0.95)), True, "faster"),
        (Change("a", 1.2, 1.1, 1.3, None), True, ""),
    ],
)
def test_a_change_goes_some_way_where_its_interval_lies_beyond_the_margin(
    change: Change, relative: bool, word: str
) -> None:
    assert change.direction(0.05, relative=relative) == word


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


ROUNDS = 6
AMPS = ("off", "bf16")


def arm_of(level: str, amp: str, first: str) -> Arm:
    off = [
        text for text, is_off in ((f"amp={amp}", amp != "off"), (f"commit={level}", level != first)) if is_off
    ]
    return Arm(id=f"{amp}@{level}", label=",".join(off) or "baseline", levels={"amp": amp, "commit": level})


def planned(levels: list[str]) -> Manifest:
    """A sweep of every level with two levels of another toggle, in one pack."""
    arms = [arm_of(level, amp, levels[0]) for level in levels for amp in AMPS]
    versions = [
        Version(
            levels={"commit": level},
            repository="/r",
            sources=f"s{place}",
            commit=None if level == "worktree" else f"{place:040x}",
            digest=f"d{place}",
            code="c",
            config={},
        )
        for place, level in enumerate(levels)
    ]
    sweep = {"name": "s", "references": {"naive": arms[0].id}, "versions": tuple(versions)}
    return manifest_of(*arms, sweep=sweep, effects=())


def timed(manifest: Manifest, slower: dict[str, float], drift: float = 0.3) -> pl.DataFrame:
    """Timing trials of a machine that wanders by `drift` from round to round; bf16 takes half the time."""
    rng = np.random.default_rng(5)
    rows = []
    for number in range(ROUNDS):
        speed = math.exp(drift * rng.standard_normal())
        for arm in manifest.arms:
            level, amp = str(arm.levels["commit"]), arm.levels["amp"]
            time = 1000.0 * slower.get(level, 1.0) * (0.5 if amp == "bf16" else 1.0)
            time *= speed * math.exp(0.003 * rng.standard_normal())
            own = {"folder": f"{arm.id}-{number}", "arm": arm.id, "label": arm.label, "round": number}
            own |= {"server": number, "started": float(number), "ns_per_unit": time, "wall_ns_per_unit": time}
            rows.append(own)
    same = {"pack": "p000", "outcome": "ok", "used": True, "lost_ns": 0}
    same["keys"] = "device=cpu; torch=2.13; data=d"
    return pl.DataFrame(rows).with_columns(**{name: pl.lit(value) for name, value in same.items()})


def versions_of(levels: list[str], slower: dict[str, float]) -> CommitVersions:
    manifest = planned(levels)
    found = commit_versions(manifest, "pair", timed(manifest, slower))
    assert found is not None
    return found


def followed(found: CommitVersions, label: str, *, paired: bool = True) -> ArmHistory:
    return arm_history(found.baselines, label, paired=found if paired else None)


def test_a_change_is_paired_within_rounds_so_that_a_wandering_machine_does_not_hide_it() -> None:
    found = versions_of(["a", "b", "c"], {"b": 1.1, "c": 1.1})
    _, second, third = followed(found, "amp=bf16").versions
    assert second.change is not None and second.change.low is not None
    assert second.change.low < 1.1 < (second.change.high or 0) and second.change.low > 1.08
    assert (second.direction, third.direction) == ("slower", "")
    # What all arms of a version share is no change against the baseline.
    assert second.change.relative is not None
    assert second.change.relative[0] == pytest.approx(1.0, abs=0.01)
    assert [one.direction for one in followed(found, "amp=bf16", paired=False).versions] == ["", "", ""]


def test_change_points_are_those_of_the_code_and_not_of_the_machine() -> None:
    levels = [f"v{n:02d}" for n in range(12)]
    found = versions_of(levels, dict.fromkeys(levels[7:], 1.05))
    for arm in history(found.baselines, paired=found).arms:
        assert [place for place, one in enumerate(arm.versions) if one.level] == [7]
        assert arm.versions[7].level == pytest.approx(1.05, abs=0.005)


def test_a_sweep_without_versions_is_none_and_one_without_a_round_says_so() -> None:
    manifest = planned(["a", "b"])
    plain = manifest.model_copy(update={"sweep": manifest.sweep.model_copy(update={"versions": ()})})
    assert commit_versions(plain, "pair", timed(manifest, {})) is None
    with pytest.raises(RecordError, match="s has no finished round of any version yet"):
        commit_versions(manifest, "pair", timed(manifest, {}).clear())


def taken(speeds: dict[str, float], seed: int = 0, **fields) -> Baseline:
    """Ten rounds on a machine whose speed wanders by 3 %, arms of a round together."""
    rng = np.random.default_rng(seed)
    drift = np.exp(0.03 * rng.standard_normal(10))
    rounds = {
        label: {
            f"p000-{n}": 1000 * time * drift[n] * math.exp(0.003 * rng.standard_normal()) for n in range(10)
        }
        for label, time in speeds.items()
    }
    return baseline(rounds, **{"config": '{"size": 1}', **fields})


def test_on_another_device_only_the_ratio_to_the_reference_can_regress():
    slow = taken({"naive": 3.0, "fast": 1.5}, 2, device="older")
    assert compare_baselines(taken({"naive": 1.0, "fast": 0.5}, 1), slow).regressions(0.05) == []
    worse = taken({"naive": 3.0, "fast": 2.0}, 2, device="older")
    assert [
        change.label
        for change in compare_baselines(taken({"naive": 1.0, "fast": 0.5}, 1), worse).regressions(0.05)
    ] == ["fast"]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("config", '{"size": 2}', "size=1 then, 2 now"),
        ("data", "", r"data differs \(d then, none now\)"),
        ("method", "n", "method"),
    ],
)
def test_other_work_is_refused_by_the_name_of_what_differs(field, value, words):
    with pytest.raises(ConfigError, match=words):
        compare_baselines(taken({"naive": 1.0}), taken({"naive": 1.0}, **{field: value}))


@pytest.mark.parametrize("text", [None, "{", '{"sweep": "s"}'])
def test_what_is_no_baseline_is_refused_by_its_path(tmp_path, text):
    file = tmp_path / "baseline.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=r"baseline\.json"):
        load(file)


@pytest.fixture
def swept(command) -> tuple[SweepFolder, Manifest]:
    """Three rounds of a reference and of an arm that takes half the time."""
    return simulated(
        command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 3}), cost
    )


def kept(folder: SweepFolder, manifest: Manifest) -> Baseline:
    trials = collect(folder, manifest)
    return baseline_of(manifest, "product", trials, Provenance("", "commit", "", "", ()))


def timings(folder: SweepFolder, arm: str = "*") -> list:
    return sorted(folder.path.glob(f"trials/{arm}/*-r*/record.json"))


def test_a_baseline_has_the_times_of_a_sweep_by_arm_and_round_with_what_they_were_measured_on(swept) -> None:
    folder, manifest = swept
    for record in timings(folder):
        same = {
            "keys": {"device": "H100", "torch": "2.13", "data": "abc"},
            "region_ns": 10**9,
            "units": 100.0,
        }
        change(record, **same, server=None if "r002" in str(record) else 7)
    found = kept(folder, manifest)
    assert found.servers == {"p000-0": 7, "p000-1": 7}, "a round of processes of their own has none"
    assert found.rounds["work=single"] == {f"p000-{number}": 1e7 for number in range(3)}
    assert (found.device, found.torch, found.data, found.commit) == ("H100", "2.13", "abc", "commit")
    assert (found.sweep, found.workload, found.unit) == (
        manifest.sweep.name,
        manifest.sweep.workload,
        "product",
    )
    assert (found.reference, found.method) == ("baseline", manifest.sweep.measure.method)
    turned = dict(reversed(manifest.sweep.config.items()))  # as another version of the workload declares it
    assert list(turned) != list(manifest.sweep.config)
    sweep = manifest.sweep.model_copy(update={"config": turned})
    assert kept(folder, manifest.model_copy(update={"sweep": sweep})) == found


def test_what_has_no_finished_round_or_a_time_that_cannot_be_is_refused(swept) -> None:
    folder, manifest = swept
    first = timings(folder, manifest.sweep.references["naive"])[0]
    change(first, region_ns=0)
    with pytest.raises(RecordError, match=r"the time of baseline in round 0 of pack p000 is 0\.0; delete"):
        kept(folder, manifest)
    for record in timings(folder):
        change(record, outcome="oom", failure={"type": "X", "message": ""})
    with pytest.raises(RecordError, match=f"{manifest.sweep.name} has no finished round of its baseline"):
        kept(folder, manifest)


def test_the_interval_of_two_means_is_welchs() -> None:
    then, now = [0.0, 0.2], [1.0, 1.1, 1.2]
    found = stats.ttest_ind(now, then, equal_var=False).confidence_interval(0.95)
    assert welch(then, now) == pytest.approx(
        [math.exp(one) for one in (1.0, found.low, found.high)], rel=1e-12
    )
    assert welch([1.0, 1.0], [2.0, 2.0]) == (math.e, math.e, math.e)
    assert welch([0.0], [0.1, 0.2]) == (pytest.approx(math.exp(0.15)), None, None), "a single round"


SERVERS = {f"p000-{n}": n // 3 for n in range(9)}


def drawn(rng: np.random.Generator, servers: dict[str, int]) -> Baseline:
    """Equal code in three servers that each keep a draw of theirs, of 2 %, for three rounds 0.5 % apart."""
    layout = {arm: 0.02 * rng.standard_normal(3) for arm in ("naive", "fast")}
    return baseline(
        {
            arm: {n: math.exp(of[server] + 0.005 * rng.standard_normal()) for n, server in SERVERS.items()}
            for arm, of in layout.items()
        },
        servers=servers,
    )


@pytest.mark.parametrize(("servers", "least", "most"), [(SERVERS, 0.92, 0.98), ({}, 0.5, 0.85)])
def test_two_sweeps_are_held_together_by_what_servers_draw(
    servers: dict[str, int], least: float, most: float
) -> None:
    rng = np.random.default_rng(0)
    held = []
    for _ in range(400):
        for one in compare_baselines(drawn(rng, servers), drawn(rng, servers)).changes:
            for _, low, high in filter(None, ((one.ratio, one.low, one.high), one.relative)):
                assert low is not None and high is not None
                held.append(low < 1.0 < high)
    assert least <= np.mean(held) <= most, np.mean(held)


def test_rounds_of_one_server_are_all_that_there_is_to_tell_two_sweeps_apart() -> None:
    one_server = dict.fromkeys(SERVERS, 0)
    then, now = (drawn(np.random.default_rng(seed), one_server) for seed in (1, 2))
    plain = [one.model_copy(update={"servers": {}}) for one in (then, now)]
    assert compare_baselines(then, now).changes == compare_baselines(*plain).changes
