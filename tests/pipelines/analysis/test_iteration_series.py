"""Steps of a trial: their percentiles, and a planted stall for data, paired within rounds."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from clocks import FakeClock
from measured import change, compared, cost, simulated
from tiny import BASELINE, Tiny, TinyConfig, squared_error

from perfsweep.pipelines.analysis.columns import Where, row_values
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.iteration_series import NO_LOADER, Steps, steps_of
from perfsweep.pipelines.analysis.quantity import Withheld
from perfsweep.pipelines.analysis.quantity_results import arm_table
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.parity.evidence import NO_CHOICE, Agreement
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.pipelines.report.sentences import footnotes
from perfsweep.pipelines.report.tables import arms_table
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.files import read_arrays, write_arrays
from perfsweep.pipelines.store.options import ReportConfig
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import (
    IDEAL_LOADER,
    Manifest,
    SweepFolder,
    read_evidence,
    write_iterations,
)
from perfsweep.pipelines.trial.timing.recorder import Recorder, _arrays
from perfsweep.workloads.api import Context, Device, Workload

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


def read(folder: Path, **arrays: list[int]) -> Steps | Withheld:
    series = {name: np.array(values) for name, values in arrays.items()}
    n = len(series["wall_ns"])
    write_iterations(folder, {"start_ns": np.arange(n), "flags": np.zeros(n, np.uint32), **series})
    return steps_of(folder)


def test_where_a_device_has_marks_of_all_steps_its_times_count(tmp_path: Path) -> None:
    inner = {"host_a/b": [1, 1]}
    found = read(tmp_path, wall_ns=[10, 20], device_ns=[7, 0], host_a=[4, 5], device_a=[3, 2], **inner)
    assert isinstance(found, Steps)
    assert found.times_ns.tolist() == [7.0, 0.0]
    assert {name: times.tolist() for name, times in found.phases.items()} == {"a": [3.0, 2.0]}
    words = "the device's marks of some steps could not be had, so single steps are not known"
    assert read(tmp_path, wall_ns=[10, 20], device_ns=[7, -1]) == Withheld(words)


LOADING_NS = 20_000


class SlowRows(torch.utils.data.Dataset):
    """Rows that take time to fetch by a clock which only tests move."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait

    def __len__(self) -> int:
        return 96

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        if row % 24 == 0:
            self._wait()
        return torch.ones(8) * row, torch.ones(1)


def training(folder: Path, clock: FakeClock, compute: Callable[[], None]) -> Tiny:
    def loss(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        compute()
        return squared_error(model, x, y)

    rows = SlowRows(lambda: clock.advance(LOADING_NS))
    workload = Tiny({"data": rows, "sampler": range(96), "loss": loss})
    context = Context(Device(), scratch_dir=folder, cache_dir=folder)
    workload.setup(TinyConfig(24), dict(BASELINE), context)
    return workload


def stall_of(workload: Workload, clock: FakeClock, folder: Path, iterations: int = 60) -> float:
    """The share that the series of a region shows."""
    recorder = Recorder(clock)
    recorder.start()
    for _ in range(iterations):
        workload.step(recorder)
        recorder.lap()
    recorder.stop()
    folder.mkdir(exist_ok=True, parents=True)
    write_iterations(folder, _arrays(recorder.series()))
    found = steps_of(folder)
    assert isinstance(found, Steps)
    waits = [found.phases[name] for name in type(workload).data_phases if name in found.phases]
    return float(sum(own.sum() for own in waits) / found.times_ns.sum())


def test_a_device_that_waits_for_a_slow_loader_is_stalled_by_what_it_waits(tmp_path: Path) -> None:
    clock = FakeClock(events=4096)
    workload = training(tmp_path, clock, lambda: clock.launch(16_000))  # the device idles 4 of 20
    assert 0.18 <= stall_of(workload, clock, tmp_path / "t") <= 0.22


def test_a_sweep_without_a_loader_says_so_and_its_other_columns_stay(command: Callable) -> None:
    planned = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 6})
    planned.report = ReportConfig(["stall"])
    comparison = compared(*simulated(planned, cost, iterations=30))
    assert f"stall: {NO_LOADER}" in comparison.notes
    (effect,) = comparison.effects
    assert effect.ratio is not None and effect.quantities["stall"].ratio is None


PLANTED = 0.2


@pytest.fixture
def stalled(command: Callable) -> Callable[..., Comparison]:
    """A sweep whose steps wait for data for a fifth of their time, or for `share` in the arm."""

    def run(share: float = PLANTED, rounds: int = 6) -> Comparison:
        measure = {"rounds": rounds, "look": True}
        planned = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure=measure)
        planned.report = ReportConfig(["stall"])
        folder, manifest = simulated(planned, cost, iterations=30)
        rng, arm = np.random.default_rng(5), manifest.effects[0].pairs[0][0]
        for file in sorted(folder.path.glob("trials/*/*-r*/iterations.npz")):
            arrays = read_arrays(file)
            own = (share if arm in file.parts else PLANTED) * np.exp(0.03 * rng.standard_normal())
            write_arrays(file, {**arrays, "host_data": (own * arrays["wall_ns"]).astype(np.int64)})
        declared = manifest.sweep.declared.model_copy(update={"data_phases": ("data",)})
        swept = manifest.sweep.model_copy(update={"declared": declared})
        return compared(folder, manifest.model_copy(update={"sweep": swept}))

    return run


def test_the_share_of_an_arm_has_an_interval_over_its_rounds(stalled: Callable[..., Comparison]) -> None:
    comparison = stalled()
    for arm in comparison.arms:
        low, high = arm.bounds["stall"]
        assert 0.18 <= low < arm.quantities["stall"] < high <= 0.22 and low < PLANTED < high
    row = row_values(arm_table(comparison.quantities), comparison.arms[0])
    assert (row["stall_low"], row["stall_high"]) == comparison.arms[0].bounds["stall"]
    (column,) = [one for one in arms_table(comparison, Where.HTML).columns if one.key == "stall"]
    assert re.fullmatch(
        r"\d+\.\d %\n\d+\.\d \.\. \d+\.\d %", column.cell(comparison.arms[0]).replace("\u00a0", " ")
    )


def test_shares_of_arm_and_base_stand_side_by_side(
    command: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 6})
    planned.report = ReportConfig(["stall"])
    folder, manifest = simulated(planned, cost, iterations=30)
    declared = manifest.sweep.declared.model_copy(update={"data_phases": ("forward",)})  # a third of the step
    sweep = manifest.sweep.model_copy(update={"declared": declared})
    (planned_effect,) = manifest.effects
    several = planned_effect.model_copy(update={"id": "several", "pairs": planned_effect.pairs * 2})
    update = {"sweep": sweep, "effects": (planned_effect, several)}
    effect, of_pairs = compared(folder, manifest.model_copy(update=update)).effects
    assert "from" not in of_pairs.quantities["stall"].text, "of several pairs no two shares are shown"
    found = effect.quantities["stall"]
    assert found.text.replace("\u00a0", " ") == "33.3 %\n33.3 .. 33.3 %\nfrom 33.3 %"
    assert found.low is not None
    assert found.ratio == pytest.approx(1, abs=1e-6)
    assert found.value == pytest.approx(1 / 3, abs=1e-3)


def test_what_an_ideal_loader_would_buy_is_an_effect_that_nothing_is_held_against(command: Callable) -> None:
    design = DesignConfig("one_at_a_time", levels={"zero_grad": ["none"]})
    planned = command(design, workload="digits", measure={"rounds": 8, "stall": True})
    folder, manifest = simulated(planned, lambda levels: 0.8 if levels.get("data") == "cached" else 1.0)
    (ideal,) = [one for one in manifest.effects if one.design == IDEAL_LOADER]
    alone = manifest.model_copy(update={"effects": (ideal,)})
    agreement = Agreement(alone, read_progress(folder, manifest), read_evidence)
    assert agreement.seeds_wanted(*ideal.pairs[0]) == 1
    assert agreement.repeats_wanted(manifest.packs[0]) == []
    comparison = compared(folder, manifest)
    found = next(one for one in comparison.effects if one.effect.design == IDEAL_LOADER)
    assert found.ratio == pytest.approx(0.8, rel=0.02) and found.verdict is Verdict.FASTER
    assert found.parity is not None and found.parity.verdict is ParityVerdict.UNCHECKED
    assert any(NO_CHOICE in note for note in footnotes(comparison)) and not found.rulings
