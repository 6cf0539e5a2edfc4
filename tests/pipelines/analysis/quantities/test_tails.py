"""Steps of a trial and their percentiles: paired within rounds, and withheld where steps are too few."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from measured import change, compared, cost, simulated

from perfsweep.pipelines.analysis.quantities.quantity import Withheld
from perfsweep.pipelines.analysis.quantities.steps import Steps, steps_of
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.store.files import read_arrays, write_arrays
from perfsweep.pipelines.store.options import ReportConfig
from perfsweep.pipelines.store.records import Manifest, SweepFolder, write_iterations

SLOWED = 3.0


@pytest.fixture
def sweep(command: Callable) -> Callable[..., tuple[SweepFolder, Manifest]]:
    def make(
        iterations: int = 400, columns: tuple[str, ...] = ("p50", "p99")
    ) -> tuple[SweepFolder, Manifest]:
        planned = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 8})
        planned.report = ReportConfig(list(columns))
        return simulated(planned, cost, iterations=iterations)

    return make


def slow_down(folder: SweepFolder, arm: str, phase: str = "host_data", share: int = 50) -> None:
    """Let one step in `share` of an arm take `SLOWED` times as long, in one phase of it."""
    for file in folder.path.glob(f"trials/{arm}/*-r*/iterations.npz"):
        arrays = read_arrays(file)
        longer = np.zeros_like(arrays["wall_ns"])
        longer[::share] = ((SLOWED - 1) * arrays["wall_ns"][::share]).astype(np.int64)
        arrays["wall_ns"] = arrays["wall_ns"] + longer
        arrays[phase] = arrays.get(phase, np.zeros_like(longer)) + longer
        write_arrays(file, arrays)
        change(file.with_name("record.json"), region_ns=int(arrays["wall_ns"].sum()))


def test_a_slow_tail_shows_in_p99_with_the_phase_that_took_the_time_and_not_in_the_median(sweep) -> None:
    folder, manifest = sweep(columns=("p50", "p95", "p99"))
    ((arm, base),) = manifest.effects[0].pairs
    slow_down(folder, arm)
    found = compared(folder, manifest)
    p50, p99 = (found.effects[0].quantities[name] for name in ("p50", "p99"))
    assert p50.ratio == pytest.approx(0.5, rel=0.01) and p99.ratio == pytest.approx(0.5 * SLOWED, rel=0.1)
    assert p99.low < p99.ratio < p99.high and p99.rounds == 8
    assert p99.value / p50.value == pytest.approx(SLOWED, rel=0.15)
    comments = {one.id: one.comments for one in found.arms}
    assert comments[arm]["p99"].startswith("slow: data 9") and "p95" not in comments[arm]
    assert "data" not in comments[base].get("p99", "")
    for file in folder.path.glob(f"trials/{arm}/*-r*/record.json"):
        change(file, units=200.0)
    (effect,) = compared(folder, manifest).effects
    assert effect.quantities["p50"].ratio == pytest.approx(0.25, rel=0.01), "steps are compared by the unit"


def test_below_300_steps_percentiles_are_withheld_and_other_columns_stay(sweep) -> None:
    comparison = compared(*sweep(iterations=299))
    (effect,) = comparison.effects
    assert effect.ratio is not None
    assert effect.quantities["p99"].ratio is None and effect.quantities["p50"].value is None
    reason = "percentiles need 300 steps in each round, and there are 299; use measure.iterations=300 or more"
    assert f"p99: {reason}" in comparison.notes and f"p50: {reason}" in comparison.notes


def test_a_series_that_cannot_be_read_is_named(sweep) -> None:
    folder, manifest = sweep()
    for file in folder.path.glob("trials/*/*-r*/iterations.npz"):
        Path(file).write_bytes(b"nothing")
    comparison = compared(folder, manifest)
    assert any(note.startswith("p99") and "iterations.npz" in note for note in comparison.notes)
    assert comparison.effects[0].ratio is not None


def read(folder: Path, **arrays: list[int]) -> Steps | Withheld:
    series = {name: np.array(values) for name, values in arrays.items()}
    n = len(series["wall_ns"])
    write_iterations(folder, {"start_ns": np.arange(n), "flags": np.zeros(n, np.uint32), **series})
    return steps_of(folder)


def test_steps_have_their_times_and_those_of_the_outermost_phases(tmp_path: Path) -> None:
    found = read(tmp_path, wall_ns=[10, 20], **{"host_a": [4, 5], "host_a/b": [1, 1], "host_c": [2, 2]})
    assert isinstance(found, Steps)
    assert found.times_ns.tolist() == [10.0, 20.0]
    assert {name: times.tolist() for name, times in found.phases.items()} == {
        "a": [4.0, 5.0],
        "c": [2.0, 2.0],
    }


def test_where_a_device_has_marks_of_all_steps_its_times_count(tmp_path: Path) -> None:
    found = read(tmp_path, wall_ns=[10, 20], device_ns=[7, 0], host_a=[4, 5], device_a=[3, 2])
    assert isinstance(found, Steps)
    assert (found.times_ns.tolist(), found.phases["a"].tolist()) == ([7.0, 0.0], [3.0, 2.0])
    words = "the device's marks of some steps could not be had, so single steps are not known"
    assert read(tmp_path, wall_ns=[10, 20], device_ns=[7, -1]) == Withheld(words)
