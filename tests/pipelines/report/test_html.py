"""The page of a report: which pictures it has, and how their captions say to read them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from markupsafe import Markup
from measured import cost, simulated

from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.collect import TRIALS, collect
from perfsweep.pipelines.analysis.columns import parquet_table
from perfsweep.pipelines.analysis.compare import Comparison, Reference, compare
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.report import html
from perfsweep.pipelines.report.sentences import level_texts
from perfsweep.pipelines.report.tables import Table
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.provenance import read_provenance
from perfsweep.pipelines.store.records import Effect, SweepFolder
from perfsweep.workloads.api import Device, Parity

Page = Callable[..., str]
UNREAD = re.compile(r"<(svg|style|script).*?</\1>", re.DOTALL)
NO_TRIALS: pl.DataFrame = parquet_table(TRIALS, [])


@pytest.fixture
def markup(command: Callable) -> Page:
    """Writes the page of a comparison without trials, and gives its body without drawings."""

    def write(comparison: Comparison) -> str:
        manifest = plan.make_plan(
            command(DesignConfig("one_at_a_time", levels={"work": ["single"]})), Device()
        )
        folder = SweepFolder(command().runs + "/toy")
        folder.path.mkdir(parents=True)
        html.write_html(folder, manifest, comparison, NO_TRIALS, read_provenance(folder.config_file, []))
        text = folder.report_file.read_text()
        return re.sub(r"<svg.*?</svg>|<style.*?</style>|<script.*?</script>", "", text, flags=re.S)

    return write


@pytest.fixture
def page(markup: Page) -> Page:
    """Writes the page of a comparison without trials, and gives its words."""
    return lambda comparison: " ".join(re.sub(r"<[^>]*>", " ", markup(comparison)).split())


def effect(arm: str, verdict: Verdict | None, ratio: float | None, same: bool = True) -> EffectResult:
    made = Effect(id=arm, design="one_at_a_time", toggle="t", level=arm, pairs=((arm, "base"),))
    parity = ParityResult(ParityVerdict.IDENTICAL if same else ParityVerdict.DIFFERENT, Parity.EXACT)
    return EffectResult(made, arm, "base", verdict, ratio, parity=parity)


def arm(name: str, ns: float | None, peak: int, **fields: Any) -> ArmResult:
    return ArmResult(name, 6, ns, peak, {"ok": 6}, id=name, paired_ns=ns, **fields)


ARMS = (arm("base", 2000.0, 10 * 2**20), arm("x", 1000.0, 20 * 2**20))
WHOLE = Comparison(
    "demo", "pair", 0.01, Reference("naive", 2000.0, 6), (effect("x", Verdict.FASTER, 0.5),), ARMS, ()
)
STAY = "Filled points, joined by a dashed line, are the Pareto front"
CROSSES = "Crosses are arms whose results are not known to be the same: they do not count."
SQUARES = "Squares are arms without a verdict on their times"


@pytest.mark.parametrize(
    ("change", "has", "lacks"),
    [
        (
            {},
            [
                "Times are those of paired rounds",
                STAY,
                "takes longer or needs more memory by more than the margin",
            ],
            [CROSSES, SQUARES, "On CPU the resident memory of the process"],
        ),
        ({"effects": (effect("x", Verdict.DIFFERENT, 0.5, same=False),)}, [STAY, CROSSES], [SQUARES]),
        (
            {
                "effects": (effect("x", Verdict.FASTER, 0.5), effect("y", Verdict.HELD_BACK, 0.9)),
                "arms": (arm("base", 2000.0, 2**20), arm("x", 1000.0, 2**20), arm("y", 900.0, 2**20)),
            },
            [STAY, SQUARES],
            [CROSSES],
        ),
        (
            {"effects": (effect("x", Verdict.HELD_BACK, 0.5),)},
            ["No comparison of times here has a verdict"],
            [STAY, CROSSES, SQUARES],
        ),
    ],
)
def test_a_trade_off_says_how_to_read_it(page: Page, change: dict, has: list[str], lacks: list[str]) -> None:
    text = page(replace(WHOLE, **change))
    assert [words for words in has if words not in text] == []
    assert [words for words in lacks if words in text] == []


def test_effects_stand_below_the_heading_of_what_to_do_and_conclusions_come_next(markup: Page) -> None:
    fast, slow = effect("x", Verdict.FASTER, 0.5), effect("<y>", Verdict.SLOWER, 1.25)
    open_one = replace(effect("z", Verdict.UNDECIDED, 0.99), note="few [rounds]")
    own = {"winners": (fast,), "workload": "toy", "noise": ("a <noisy> machine",)}
    own["in_code"] = {name: {text: "`x = [<2>]` first"} for name, text in level_texts(fast).items()}
    text = markup(replace(WHOLE, effects=(slow, open_one, fast), **own))
    groups = re.findall(r'<th scope="rowgroup" class="group" colspan="(\d+)">([A-Z ]+)</th>', text)
    assert [words for _, words in groups] == ["TURN ON", "LEAVE OFF", "NOT DECIDED"]
    assert {int(columns) for columns, _ in groups} == {text.partition("</thead>")[0].count('<th scope="col"')}
    rows = [">2.00x faster<", ">1.25x slower<", "t=&lt;y&gt;"]
    assert all(row in text for row in rows) and "<y>" not in text and "<noisy>" not in text
    order = ["! a &lt;noisy&gt; machine", "TURN ON", "few [rounds]", "<b>Use it:</b> <code>perfsweep run"]
    order.append("<b>In code:</b> <code>x = [&lt;2&gt;]</code> first</li>")
    places = [text.index(one) for one in order]
    assert places == sorted(places)


def test_energy_and_money_are_weighed_where_they_are_known_and_memory_then_has_a_picture_of_its_own(
    page: Page,
) -> None:
    priced = tuple(replace(one, quantities={"energy": 3.0, "cost": 7.0}) for one in ARMS)
    text = page(replace(WHOLE, arms=priced))
    assert "every other arm takes longer, draws more energy, or costs more, by more than the margin" in text
    assert "On CPU the resident memory of the process" in text


@pytest.mark.parametrize(
    ("titles", "found"),
    [
        ([("Effects: factorial", "a x b"), ("Effects: arms", "a x b")], "Effects: factorial"),
        ([("Effects: arms", "a"), ("Effects: factorial", "a x b")], "Effects: factorial"),
        ([("On a GPU: factorial", "a x b"), ("Effects: arms", "a")], ""),
        ([], ""),
    ],
)
def test_interactions_are_drawn_beside_the_first_table_that_estimates_any(
    titles: list[tuple[str, str]], found: str
) -> None:
    def table(title: str, toggle: str) -> Table:
        one = effect("x", None, None)
        return Table(title, (), (replace(one, effect=one.effect.model_copy(update={"toggle": toggle})),))

    assert html.interaction_title([table(*one) for one in titles]) == found


@pytest.fixture
def captions(command: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Captions of the pictures that a measured sweep has, by title; nothing is drawn."""
    drawn: dict[str, str] = {}

    def draw(chart: object, name: str, label: str, desk: int = 0) -> Markup:
        title, _, caption = label.partition(". ")
        drawn[title] = caption
        return Markup("")

    def pictures(*designs: DesignConfig, **declared: str) -> dict[str, str]:
        drawn.clear()
        folder, manifest = simulated(command(*designs, measure={"rounds": 3}), cost, iterations=20)
        own = manifest.sweep.declared.model_copy(update=declared)
        planned = manifest.model_copy(update={"sweep": manifest.sweep.model_copy(update={"declared": own})})
        trials = collect(folder, planned)
        provenance = read_provenance(folder.config_file, [])
        html.write_html(folder, planned, compare(folder, planned, trials), trials, provenance)
        return dict(drawn)

    monkeypatch.setattr("perfsweep.pipelines.report.pictures.svg.drawn", draw)
    return pictures


LADDER = DesignConfig("ladder", levels={"slab": [2, 4]})
LEVELS = DesignConfig("one_at_a_time", levels={"work": ["single"], "sign": ["wrong"]})


def test_a_ladder_has_a_frontier_and_iterations_say_whose_they_are_and_what_came_before(captions) -> None:
    found = captions(LADDER, LEVELS)
    assert list(found) == ["Effects", "Phases", "Trade-off", "Frontier of slab", "Iterations", "Rounds"]
    assert (
        found["Iterations"]
        == "The last round of naive and work=single, iteration by iteration; warm-up is dotted."
    )
    found = captions(LEVELS, shape="job")
    assert "Frontier of slab" not in found and found["Iterations"].endswith("the discarded job is dotted.")


def test_iterations_are_those_of_the_baseline_and_the_fastest_arm_whose_time_counts(
    command: Callable,
) -> None:
    manifest = plan.make_plan(command(LEVELS), Device())
    baseline = manifest.sweep.references["naive"]
    arms = tuple(
        arm(name, ns, 1) for name, ns in (("slow", 900.0), ("fast", 50.0), ("wrong", 5.0), (baseline, 90.0))
    )
    effects = (effect("wrong", Verdict.DIFFERENT, 0.1, same=False), effect("fast", Verdict.FASTER, 0.5))
    comparison = replace(WHOLE, effects=effects, arms=arms)
    assert html.baseline_and_fastest(manifest, comparison) == [baseline, "fast"]
    nothing = tuple(replace(one, paired_ns=None) for one in arms)
    assert html.baseline_and_fastest(manifest, replace(comparison, arms=nothing)) == [baseline]
