"""Two sweeps of the same work: what became slower, and what must not be compared."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import change, cost, simulated
from scipy import stats

from perfsweep.pipelines.analysis.across.baselines import (
    Baseline,
    baseline_of,
    compare_baselines,
    load,
    store,
    welch,
)
from perfsweep.pipelines.analysis.collect import collect
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.store.provenance import Provenance
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.workloads.errors import ConfigError, RecordError


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
    facts = {
        "sweep": "s",
        "workload": "w",
        "unit": "pair",
        "config": '{"size": 1}',
        "method": "m",
        "data": "d",
    }
    facts |= {"device": "cpu", "torch": "2.13", "commit": "a", "reference": "naive"}
    return Baseline(**{**facts, "rounds": rounds, **fields})


def test_an_arm_that_became_slower_is_found_and_the_others_are_not():
    then, now = taken({"naive": 1.0, "fast": 0.5}, 1), taken({"naive": 1.0, "fast": 0.6}, 2, commit="b")
    found = compare_baselines(then, now)
    assert [change.label for change in found.regressions(0.05)] == ["fast"]
    assert found.moved == ("commit: a -> b",)


def test_the_ratio_to_the_reference_is_known_more_closely_than_the_time_itself():
    found = compare_baselines(taken({"naive": 1.0, "fast": 0.5}, 1), taken({"naive": 1.0, "fast": 0.51}, 2))
    fast = next(change for change in found.changes if change.label == "fast")
    assert fast.relative is not None and fast.low is not None and fast.high is not None
    assert fast.relative[1] is not None and fast.relative[2] is not None
    assert fast.relative[2] - fast.relative[1] < (fast.high - fast.low) / 3
    assert fast.relative[0] == pytest.approx(1.02, abs=0.01)


def test_on_another_device_only_the_ratio_to_the_reference_can_regress():
    slow = taken({"naive": 3.0, "fast": 1.5}, 2, device="older")
    assert compare_baselines(taken({"naive": 1.0, "fast": 0.5}, 1), slow).regressions(0.05) == []
    worse = taken({"naive": 3.0, "fast": 2.0}, 2, device="older")
    assert [
        change.label
        for change in compare_baselines(taken({"naive": 1.0, "fast": 0.5}, 1), worse).regressions(0.05)
    ] == ["fast"]


def test_of_a_configuration_only_what_differs_is_named():
    then, now = (taken({"naive": 1.0}, config=f'{{"long": [1000], "size": {size}}}') for size in (1, 2))
    with pytest.raises(ConfigError, match=r"config differs \(size=1 then, 2 now\)"):
        compare_baselines(then, now)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("workload", "v", "workload"),
        ("config", '{"size": 2}', "size=1 then, 2 now"),
        ("data", "e", r"data differs \(d then, e now\)"),
        ("data", "", r"data differs \(d then, none now\)"),
        ("method", "n", "method"),
    ],
)
def test_other_work_is_refused_by_the_name_of_what_differs(field, value, words):
    with pytest.raises(ConfigError, match=words):
        compare_baselines(taken({"naive": 1.0}), taken({"naive": 1.0}, **{field: value}))


def test_arms_of_only_one_sweep_are_named():
    found = compare_baselines(taken({"naive": 1.0, "old": 1.0}), taken({"naive": 1.0, "new": 1.0}))
    assert set(found.missing) == {"old", "new"}


def test_a_single_round_gives_a_ratio_and_no_interval():
    assert welch([0.0], [0.1, 0.2]) == (pytest.approx(math.exp(0.15)), None, None)


@given(st.integers(0, 10_000))
def test_equal_arms_are_rarely_called_slower(seed):
    found = compare_baselines(taken({"naive": 1.0}, seed), taken({"naive": 1.0}, seed + 20_000))
    # A margin of 5 % beside a standard error near 1.3 %: one in ten thousand at most.
    assert found.regressions(0.05) == []


def test_a_baseline_is_read_back_as_it_was_stored(tmp_path):
    kept = taken({"naive": 1.0})
    store(kept, tmp_path / "deep" / "baseline.json")
    assert load(tmp_path / "deep" / "baseline.json") == kept


@pytest.mark.parametrize("text", [None, "{", '{"sweep": "s"}'])
def test_what_is_no_baseline_is_refused_by_its_path(tmp_path, text):
    file = tmp_path / "baseline.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=r"baseline\.json"):
        load(file)


def test_a_reference_of_either_sweep_has_no_ratio_to_itself_and_without_shared_rounds_none_has_one():
    then, now = (
        taken({"naive": 1.0, "fast": 0.5, "new": 0.4}, 1),
        taken({"naive": 1.0, "fast": 0.5, "new": 0.4}, 2),
    )
    found = compare_baselines(then, now.model_copy(update={"reference": "fast"}))
    assert {one.label: one.relative is None for one in found.changes} == {
        "naive": True,
        "fast": True,
        "new": False,
    }
    apart = now.model_copy(update={"rounds": {**now.rounds, "fast": {"p001-0": 500.0, "p001-1": 501.0}}})
    relative = {one.label: one.relative for one in compare_baselines(then, apart).changes}
    assert relative["fast"] is None and relative["new"] is not None


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
        change(record, keys={"device": "H100", "torch": "2.13", "data": "abc"}, region_ns=10**9, units=100.0)
    found = kept(folder, manifest)
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


def test_arms_of_other_data_than_the_references_are_in_no_baseline(swept) -> None:
    folder, manifest = swept
    ((arm, _),) = manifest.effects[0].pairs
    for record in timings(folder, arm):
        change(record, keys={"device": "fake", "data": "other"})
    assert set(kept(folder, manifest).rounds) == {"baseline"}


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
    assert welch(then, now) == pytest.approx([math.exp(one) for one in (1.0, found.low, found.high)])
    assert welch([1.0, 1.0], [2.0, 2.0]) == (math.e, math.e, math.e)
