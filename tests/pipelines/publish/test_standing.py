"""Runs in W&B are ordered as `compare` orders arms, by the same figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from loopback import Loopback
from measured import change, compared, series, simulated
from recorded import Built, publish_here

from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.publish.comparison_run import standings
from perfsweep.pipelines.publish.runs import SweepRuns
from perfsweep.pipelines.store.files import read_json
from perfsweep.pipelines.store.records import Manifest, SweepFolder, write_iterations
from perfsweep.pipelines.units import MB
from perfsweep.workloads.errors import RecordError

TOY = {"work": ["single"], "slab": [4], "idle": ["on"]}
JOB = {"solver": ["newton"], "label_free": ["on"], "skip_zero_grad": ["exact"]}


def measured(make: Callable, workload: str, levels: dict[str, list]) -> tuple[SweepFolder, Manifest]:
    """Each arm takes longer than the one before, with far more and so shorter iterations."""
    design = DesignConfig("one_at_a_time", levels=levels)
    seconds: dict[str, float] = {}

    def time_of(levels: dict[str, object]) -> float:
        return seconds.setdefault(str(levels), 0.01 * (1 + len(seconds)))

    folder, manifest = simulated(
        make(design, workload=workload, measure={"rounds": 6}), time_of, drift=0.02, iterations=8
    )
    rng = np.random.default_rng(5)
    for arm in manifest.arms:
        longer = seconds[str(arm.levels)] / 0.01
        for record in folder.path.glob(f"trials/{arm.id}/*-r*/record.json"):
            count, took = round(8 * longer**2), read_json(record) or {}
            write_iterations(record.parent, series(rng, took["region_ns"] / 1e9, count))
            change(record, iterations=count, peak_bytes=round(10**6 * longer))
    assert manifest.sweep.declared
    unchecked = manifest.sweep.declared.model_copy(update={"checks": ()})  # what was computed is not recorded
    manifest = manifest.model_copy(
        update={"sweep": manifest.sweep.model_copy(update={"declared": unchecked})}
    )
    folder.write_manifest(manifest)
    return folder, manifest


def summaries(folder: SweepFolder, manifest: Manifest) -> dict[str, dict]:
    """What the runs of the arms say of themselves, by the name that W&B shows."""
    runs = SweepRuns(folder, manifest)
    made = [runs.content(key) for key in runs.keys(None) if key[1]]
    assert runs.problems == []
    return {one.name: one.summary for one in made if one}


def order(comparison: Comparison) -> list[str]:
    arms = sorted(comparison.arms, key=lambda arm: arm.paired_ns or 0.0)
    return [arm.name for arm in arms]


def test_runs_are_ordered_as_compare_orders_arms(command: Callable) -> None:
    folder, manifest = measured(command, "probe1d", JOB)
    found = compared(folder, manifest)
    said = summaries(folder, manifest)
    assert sorted(said, key=lambda name: said[name]["bench_ms_per_unit"]) == order(found)
    others = [name for name in order(found) if name != "naive"]
    assert sorted(others, key=lambda name: -said[name]["speed"]) == others
    by_iteration = sorted(said, key=lambda name: said[name]["bench_median_ms"])
    assert by_iteration == order(found)[::-1], "the median iteration would order them otherwise"


def test_a_run_says_the_speed_time_and_memory_that_the_comparison_says(command: Callable) -> None:
    folder, manifest = measured(command, "toys.spinner:Spinner", TOY)
    assert standings(folder, manifest) == {}, "before the first comparison"
    found = compared(folder, manifest)
    said = summaries(folder, manifest)
    for effect in found.effects:
        own = said[effect.arm_label]
        speeds = [1 / ratio for ratio in (effect.ratio, effect.high, effect.low) if ratio]
        assert [own["speed"], own["speed_low"], own["speed_high"]] == speeds
        assert own["verdict"] == effect.word
    for arm in found.arms:
        assert said[arm.name]["bench_ms_per_unit"] * 1e6 == arm.paired_ns
        assert said[arm.name]["bench_peak_mem_mb"] * MB == arm.peak_bytes
    assert "speed" not in said["naive"] and "verdict" not in said["naive"]


def test_an_arm_that_does_less_is_not_ranked(command: Callable) -> None:
    folder, manifest = measured(command, "toys.spinner:Spinner", TOY)
    compared(folder, manifest)
    (effect,) = [one for one in manifest.effects if one.toggle == "work"]
    _rewrite(folder, effect.id, "fewer units")
    own = summaries(folder, manifest)["work=single"]
    assert own["verdict"] == "fewer units" and "bench_median_ms" in own
    assert not {"speed", "speed_low", "bench_ms_per_unit"} & set(own)


def _rewrite(folder: SweepFolder, effect: str, verdict: str) -> None:
    import polars as pl

    file = folder.tables_dir / "effects.parquet"
    new = pl.when(pl.col("id") == effect).then(pl.lit(verdict)).otherwise(pl.col("verdict"))
    pl.read_parquet(file).with_columns(new.alias("verdict")).write_parquet(file)


def test_a_damaged_table_is_named_and_runs_are_published_without_their_speed(command: Callable) -> None:
    folder, manifest = measured(command, "toys.spinner:Spinner", TOY)
    compared(folder, manifest)
    (folder.tables_dir / "arms.parquet").write_bytes(b"PAR1")
    with pytest.raises(RecordError, match=r"arms.parquet is damaged; make it again with `perfsweep compare"):
        standings(folder, manifest)
    runs = SweepRuns(folder, manifest)
    assert runs.content(runs.keys()[0]) and "arms.parquet is damaged" in runs.problems[0]


@pytest.mark.slow
def test_a_comparison_made_later_reaches_runs_that_are_on_the_server(
    command: Callable, backend: Loopback, tmp_path: Path
) -> None:
    folder, manifest = measured(command, "toys.spinner:Spinner", {"work": ["single"]})
    built = Built(folder, manifest)
    assert publish_here(built, server=backend.url).complete
    rows, found = backend.rows(), compared(folder, manifest)
    done = publish_here(built, server=backend.url)
    assert done.complete and [run.note for run in done.runs][:2] == ["continued"] * 2
    said = {run.display_name: run.summary_values for run in backend.runs().values()}
    assert sorted(said, key=lambda name: said[name]["bench_ms_per_unit"]) == order(found)
    assert backend.rows() == rows, "the rows are not sent again"
