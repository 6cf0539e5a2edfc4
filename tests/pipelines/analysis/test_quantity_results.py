"""Quantities other than time: values of arms, changes of effects, how both read, and what is lacking."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from measured import change, compared, cost, simulated
from rich.console import Console

from perfsweep.pipelines import api
from perfsweep.pipelines.analysis import quantity_results
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.effect_result import EffectResult, QuantityResult
from perfsweep.pipelines.analysis.quantity import (
    NO_ROUND,
    Measured,
    Paired,
    Quantity,
    Withheld,
    per_trial,
    recorded,
)
from perfsweep.pipelines.analysis.quantity_results import QUANTITIES, QuantityResults, change_text
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.publish.comparison_run import compare_content
from perfsweep.pipelines.report import html, markdown, terminal_table
from perfsweep.pipelines.report.comparison_object import effect_rows
from perfsweep.pipelines.report.tables import as_json
from perfsweep.pipelines.statistics.verdicts import ReasonCode, Verdict
from perfsweep.pipelines.store.options import COLUMNS, ReportConfig
from perfsweep.pipelines.store.provenance import read_provenance
from perfsweep.pipelines.store.records import Manifest, SweepFolder
from perfsweep.pipelines.store.schema import Effect
from perfsweep.workloads.errors import ConfigError

EFFECT = Effect(id="e", design="one_at_a_time", toggle="t", level="on", pairs=(("a", "b"),))
CHANGE = QuantityResult(0.9, 0.8, 0.95, 0.01, 3.0, 6)


@dataclass
class Stated:
    """A source of values that are stated, by arm, and one change for all effects."""

    values: dict[str, float | Withheld]
    change: QuantityResult = CHANGE
    comments: dict[str, str] = field(default_factory=dict)
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)

    def of_arm(self, arm: str) -> float | Withheld:
        return self.values[arm]

    def of_effect(self, effect: Effect) -> QuantityResult:
        return self.change

    def bounds_of(self, arm: str) -> tuple[float, float] | None:
        return self.bounds.get(arm)


def quantity(key: str, source: object, **fields: Any) -> Quantity:
    return Quantity(key, f"the {key}", key, "", lambda measured: source, str, **fields)  # type: ignore[arg-type, return-value]


def results(*quantities: Quantity) -> QuantityResults:
    manifest: Any = SimpleNamespace(arm_names={arm: arm.upper() for arm in "abcdefgh"})
    measured: Any = Measured(manifest, None, (), None)  # type: ignore[arg-type]
    return QuantityResults(quantities, measured)


LACKING = Withheld("no counter")


def result(code: ReasonCode, **fields: Any) -> EffectResult:
    verdict = fields.pop("verdict", Verdict.HELD_BACK)
    return EffectResult(EFFECT, "a", "b", verdict, code=code, **fields)


@pytest.mark.parametrize(
    ("code", "held"),
    [
        (ReasonCode.CALLED_FASTER, False),
        (ReasonCode.ALL_DISTURBED, False),
        (ReasonCode.NO_TIME, True),
        (ReasonCode.RESULTS_DIFFER, True),  # by what the quantity itself says
    ],
)
def test_a_change_is_held_back_by_what_its_quantity_names_and_by_a_missing_time(
    code: ReasonCode, held: bool
) -> None:
    barred = quantity("cost", Stated({}), held_back_by=frozenset({ReasonCode.RESULTS_DIFFER}))
    found = results(barred).of_effect(result(code))
    assert (found["cost"].ratio is None) is held


def notes(values: dict, effects: dict[str, QuantityResult], *more: Quantity, **fields: Any) -> list[str]:
    found = results(quantity("energy", Stated(values), **fields), *more)
    named = {name: {"energy": one, **{other.key: CHANGE for other in more}} for name, one in effects.items()}
    return found.notes(named, values)


def test_arms_that_lack_a_quantity_are_named_and_effects_unless_their_arms_were() -> None:
    assert notes({"a": LACKING, "b": 1.0, "c": LACKING}, {}) == ["the energy of A, C: no counter"]
    zero, without = QuantityResult(withheld="it is zero"), QuantityResult(withheld="no counter")
    assert notes({"a": 1.0, "b": 1.0}, {"x": zero, "y": CHANGE}) == ["the energy of x: it is zero"]
    assert notes({"a": 1.0, "b": LACKING}, {"x": without, "y": CHANGE}) == ["the energy of B: no counter"]
    assert notes({"a": 1.0}, {"x": QuantityResult(withheld=NO_ROUND.reason), "y": CHANGE}) == []


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (QuantityResult(0.9, 0.8, 0.95), "1.11x less\n1.05\u00a0..\u00a01.25"),
        (QuantityResult(1.25, 1.2, 1.5), "1.25x more\n1.20\u00a0..\u00a01.50"),
        (QuantityResult(value=3.0, withheld="why"), ""),
        (QuantityResult(text="too noisy"), "too noisy"),
    ],
)
def test_a_change_reads_with_its_interval_below_or_as_the_word_in_its_place(
    result: QuantityResult, text: str
) -> None:
    assert change_text(result) == text


AGAINST = Effect(id="e", design="one_at_a_time", toggle="t", level="on", pairs=(("arm", "base"),))
NO_ROUND_WORDS = "no round is finished"


@dataclass
class Record:
    """What of a trial's record quantities are read from."""

    arm: str
    round: int | None
    quantities: dict[str, float]
    units: float = 10.0
    pack: str = "p000"
    withheld: dict[str, str] = field(default_factory=dict)

    @property
    def draw(self) -> int | None:
        return self.round


def measured_from(*records: Record) -> Measured:
    trials: Any = [SimpleNamespace(record=one) for one in records]
    manifest: Any = SimpleNamespace(sweep=None)
    return Measured(manifest, None, trials, None)  # type: ignore[arg-type]


def joules(**arms: list[float | None]) -> list[Record]:
    """A record for each round of an arm, with joules of one unit; None: it was measured without them."""
    return [
        Record(arm, number, {} if value is None else {"energy_j": 10 * value})
        for arm, values in arms.items()
        for number, value in enumerate(values)
    ]


def energy_of(*records: Record) -> Paired:
    source = per_trial("energy", recorded("energy_j"))(measured_from(*records))
    assert isinstance(source, Paired)
    return source


def test_an_effect_has_the_interval_and_p_of_its_rounds() -> None:
    up = [1.02, 0.98, 1.01, 0.99, 1.0]
    found = energy_of(*joules(base=[1.0] * 5, arm=[2 * one for one in up])).of_effect(AGAINST)
    assert found.low is not None and found.high is not None and found.p is not None
    assert found.low < 2.0 < found.high
    assert math.sqrt(found.low * found.high) == pytest.approx(found.ratio)
    assert found.p < 0.001


@pytest.mark.parametrize(
    ("arms", "value", "withheld"),
    [
        ({"arm": [1.0]}, 1.0, NO_ROUND_WORDS),
        ({"arm": [1.0], "base": [None]}, 1.0, "the trials were measured without it"),
        ({"arm": [0.0], "base": [1.0]}, 0.0, "energy is zero, which has no ratio"),
        ({"arm": [1.0, None], "base": [None, 1.0]}, 1.0, "no round measured both the arm and its base"),
    ],
)
def test_an_effect_without_a_ratio_says_why_and_keeps_the_arms_own_value(
    arms: dict, value: float | None, withheld: str
) -> None:
    assert energy_of(*joules(**arms)).of_effect(AGAINST) == QuantityResult(value=value, withheld=withheld)


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
    monkeypatch.setattr(quantity_results, "QUANTITIES", (*quantity_results.QUANTITIES, WATER))
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


def test_an_unknown_column_is_refused_by_name(sweep) -> None:
    folder, _ = sweep()
    with pytest.raises(ConfigError, match=r"report\.columns=wine is unknown; choose from"):
        api.open_sweep(folder.path, ["wine"])
