"""Quantities beside time: paired within rounds, shown where they are chosen, and missed with a reason."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from measured import change, compared, cost, simulated, spec_of, write
from rich.console import Console

from perfsweep.pipelines import api
from perfsweep.pipelines.analysis.columns import Where
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.quantities import completed
from perfsweep.pipelines.analysis.quantities.completed import QUANTITIES, arm_table, effect_table
from perfsweep.pipelines.analysis.quantities.cost import ENERGY
from perfsweep.pipelines.analysis.quantities.quantity import Quantity, per_trial, recorded
from perfsweep.pipelines.analysis.quantities.steps import STALL
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.publish.comparison_run import compare_content
from perfsweep.pipelines.report import html, markdown, terminal_table
from perfsweep.pipelines.report.comparison_object import effect_rows
from perfsweep.pipelines.report.objects import as_json
from perfsweep.pipelines.report.tables import answer_tables
from perfsweep.pipelines.store.options import COLUMNS, ReportConfig
from perfsweep.pipelines.store.provenance import read_provenance
from perfsweep.pipelines.store.records import Kind, Manifest, SweepFolder
from perfsweep.workloads.errors import ConfigError

WATER = Quantity(
    "water",
    "water",
    "water per {unit}",
    "what cooling it takes",
    per_trial("water", recorded("water_l")),
    lambda litres: f"{litres:.3g} l",
)
RATIO = 0.7


@pytest.fixture
def water(monkeypatch: pytest.MonkeyPatch) -> Quantity:
    monkeypatch.setattr(completed, "QUANTITIES", (*completed.QUANTITIES, WATER))
    return WATER


@pytest.fixture
def sweep(command: Callable, water: Quantity) -> Callable[..., tuple[SweepFolder, Manifest]]:
    """A sweep of one level in 12 rounds that shows the water column; its trials record none yet."""

    def make(rounds: int = 12) -> tuple[SweepFolder, Manifest]:
        design = DesignConfig("one_at_a_time", levels={"work": ["single"]})
        planned = command(design, measure={"rounds": rounds})
        planned.report = ReportConfig(["water"])
        return simulated(planned, cost)

    return make


def pour(folder: SweepFolder, manifest: Manifest, ratio: float = RATIO, noise: float = 0.01) -> None:
    """Record litres that wander from round to round, `ratio` of the base's for the arm, with some noise."""
    rng = np.random.default_rng(3)
    (effect,) = manifest.effects
    ((arm, base),) = effect.pairs
    for number in range(len(manifest.packs[0].orders)):
        level = np.exp(0.5 * rng.standard_normal())
        for name, share in ((arm, ratio), (base, 1.0)):
            (record,) = folder.path.glob(f"trials/{name}/*-r{number:03d}-*/record.json")
            litres = 50 * level * share * np.exp(noise * rng.standard_normal())
            change(record, quantities={"water_l": litres})


def shown(folder: SweepFolder, manifest: Manifest, comparison: Comparison) -> dict[str, str]:
    provenance = read_provenance(folder.config_file, [])
    trials = pl.read_parquet(Path(folder.tables_dir) / "trials.parquet")
    html.write_html(folder, manifest, comparison, trials, provenance)
    markdown.write_markdown(folder, comparison, provenance)
    console = Console(file=io.StringIO(), width=120)
    terminal_table.show(console, comparison)
    content = compare_content(folder, manifest, "i")
    (row,) = content.segments[0].rows()
    return {
        "terminal": console.file.getvalue(),  # type: ignore[attr-defined]
        "html": folder.report_file.read_text().partition("<body>")[2],
        "markdown": folder.markdown_file.read_text(),
        "json": json.dumps(as_json(effect_rows(comparison, comparison.effects))),
        "wandb": f"{row['effects'].columns} {sorted(content.summary)}",
    }


def test_configurations_know_the_names_of_the_registry() -> None:
    assert tuple(one.key for one in QUANTITIES) == COLUMNS


def test_an_effect_is_the_ratio_within_rounds_with_an_interval_however_far_rounds_lie_apart(sweep) -> None:
    folder, manifest = sweep()
    pour(folder, manifest)
    comparison = compared(folder, manifest)
    (effect,) = comparison.effects
    found = effect.quantities["water"]
    assert found.low is not None and found.high is not None
    assert found.low < RATIO < found.high and found.high / found.low < 1.03
    assert found.rounds == 12 and found.p is not None and found.p < 1e-6
    by_arm = {one.id: one.quantities["water"] for one in comparison.arms}
    litres = [
        json.loads(record.read_text())["quantities"]["water_l"] / 100.0
        for record in folder.path.glob(f"trials/{effect.effect.pairs[0][0]}/*-r*/record.json")
    ]
    assert by_arm[effect.effect.pairs[0][0]] == pytest.approx(float(np.median(litres)))


def test_what_was_chosen_is_shown_by_terminal_page_markdown_and_wandb(sweep) -> None:
    folder, manifest = sweep()
    pour(folder, manifest)
    everywhere = shown(folder, manifest, compared(folder, manifest))
    for place in ("terminal", "html", "markdown"):
        assert "water" in everywhere[place], place
        assert "1.43x less" in everywhere[place].replace("\u00a0", " "), place
    assert "water per " in everywhere["html"] and " l</td>" in everywhere["html"]
    assert '"water_ratio": 0.7' in everywhere["json"] or '"water_ratio": 0.69' in everywhere["json"]
    assert "'water_ratio'" in everywhere["wandb"] and "/water_low" in everywhere["wandb"]


@pytest.mark.slow
def test_what_was_not_chosen_is_shown_by_nobody(sweep) -> None:
    folder, manifest = sweep()
    pour(folder, manifest)
    unchosen = manifest.sweep.model_copy(update={"report": ReportConfig()})
    plain = manifest.model_copy(update={"sweep": unchosen})
    for place, text in shown(folder, plain, compared(folder, plain)).items():
        assert "water" not in text, place


def test_a_quantity_that_cannot_be_had_says_why_once_and_the_other_columns_stay(sweep) -> None:
    folder, manifest = sweep()
    for record in folder.path.glob("trials/*/*-r*/record.json"):
        change(record, withheld={"water_l": "the tap is closed"})
    comparison = compared(folder, manifest)
    assert comparison.notes.count("water: the tap is closed") == 1
    (table, *_) = answer_tables(comparison, Where.HTML)
    assert "water" not in [column.heading for column in table.columns]
    (effect,) = comparison.effects
    assert effect.ratio is not None and effect.quantities["water"].withheld == "the tap is closed"


def test_an_arm_without_a_round_is_no_news_of_a_quantity(sweep) -> None:
    """Why it has none stands in its verdict, and need not be said again of each column."""
    folder, manifest = sweep()
    pour(folder, manifest)
    ((arm, _),) = manifest.effects[0].pairs
    for record in folder.path.glob(f"trials/{arm}/*-r*/record.json"):
        change(record, outcome="unsupported", units=0.0)
    comparison = compared(folder, manifest)
    assert not any("no round is finished" in note for note in comparison.notes)
    assert comparison.effects[0].quantities["water"].withheld == "no round is finished"


@pytest.mark.parametrize(
    ("ends", "text"), [((0.1, 0.25), "10.0 .. 25.0 %"), ((1.0, 2.0), "100.0 .. 200.0 %"), (None, "")]
)
def test_two_ends_of_an_interval_have_their_unit_once(ends: tuple[float, float] | None, text: str) -> None:
    assert STALL.interval_text(ends) == text.replace(" ", "\u00a0")


def test_two_ends_of_different_units_keep_both() -> None:
    assert ENERGY.interval_text((0.5, 2.0)) == "500 mJ .. 2 J".replace(" ", "\u00a0")


def test_records_from_before_a_quantity_was_measured_say_so(sweep) -> None:
    comparison = compared(*sweep())
    assert "water: the trials were measured without it" in comparison.notes


def test_a_level_that_does_nothing_changes_nothing(sweep) -> None:
    folder, manifest = sweep()
    pour(folder, manifest)
    for arm in manifest.arms:
        write(folder, spec_of(manifest, arm.id, "p000", None, Kind.COUNTING), counters={"products": 8.0})
    comparison = compared(folder, manifest)
    (effect,) = comparison.effects
    found = effect.quantities["water"]
    assert (effect.outcome, effect.ratio) == ("inert", None)
    assert (found.ratio, found.low, found.text) == (None, None, "inert") and found.value is not None
    why = "not compared: inert, products is the same with and without it"
    assert f"water: {why}" in comparison.notes


def test_an_arm_that_uses_none_has_a_value_and_no_ratio(sweep) -> None:
    folder, manifest = sweep()
    pour(folder, manifest, ratio=0.0)
    (effect,) = compared(folder, manifest).effects
    found = effect.quantities["water"]
    assert found.ratio is None and found.value == 0.0
    assert found.withheld == "water is zero, which has no ratio"


def test_one_round_has_a_ratio_without_an_interval(sweep) -> None:
    folder, manifest = sweep(rounds=3)
    pour(folder, manifest, noise=0.0)
    for record in folder.path.glob("trials/*/*-r00[12]-*/record.json"):
        change(record, quantities={})
    (effect,) = compared(folder, manifest).effects
    found = effect.quantities["water"]
    assert found.ratio == pytest.approx(RATIO) and found.low is None and found.rounds == 1


def test_an_unknown_column_is_refused_by_name(sweep) -> None:
    folder, _ = sweep()
    with pytest.raises(ConfigError, match=r"report\.columns=wine is unknown; choose from"):
        api.open_sweep(folder.path, ["wine"])


def test_plans_that_differ_in_their_columns_or_the_price_alone_measure_the_same(sweep) -> None:
    _, manifest = sweep()
    other = manifest.sweep.model_copy(update={"report": ReportConfig()})
    assert manifest.measures_the_same(manifest.model_copy(update={"sweep": other}))
    priced = manifest.sweep.model_copy(update={"price": "2.5/GPU-hour"})
    assert manifest.measures_the_same(manifest.model_copy(update={"sweep": priced}))
    renamed = manifest.sweep.model_copy(update={"name": "another"})
    assert not manifest.measures_the_same(manifest.model_copy(update={"sweep": renamed}))


def test_columns_of_a_quantity_have_the_type_that_files_give_them() -> None:
    def added(table: Callable) -> dict[str, tuple[type, bool]]:
        usual = {column.key for column in table(())}
        return {
            column.key: (column.kind, column.optional)
            for column in table((WATER,))
            if column.key not in usual
        }

    number, shown = (float, False), (float, True)
    assert added(arm_table) == {
        "water": shown,
        "water_low": number,
        "water_high": number,
        "water_comment": (str, False),
    }
    assert added(effect_table) == {
        "water": (str, True),
        **{f"water_{name}": number for name in ("value", "ratio", "low", "high", "p")},
        "water_rounds": (int, False),
        "water_withheld": (str, False),
    }
