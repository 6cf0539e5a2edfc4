"""The page of a report: which pictures it has, how captions say to read them, and where its text breaks."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from markupsafe import Markup
from measured import change, compared, cost, simulated
from rich.console import Console

from perfsweep.pipelines import api
from perfsweep.pipelines.analysis import effect_columns
from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.collect import TRIALS, collect
from perfsweep.pipelines.analysis.columns import Column, Style, parquet_table
from perfsweep.pipelines.analysis.compare import Comparison, Reference, compare
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.config.types import (
    ClusterConfig,
    DesignConfig,
    MeasureConfig,
    SweepCommand,
    SweepConfig,
)
from perfsweep.pipelines.parity.results import ParityResult, ParityVerdict
from perfsweep.pipelines.plan import plan
from perfsweep.pipelines.publish.comparison_run import compare_content
from perfsweep.pipelines.report import html, markdown, terminal_table
from perfsweep.pipelines.report.html import breakable, unbroken
from perfsweep.pipelines.report.sentences import level_texts
from perfsweep.pipelines.report.tables import Table
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.provenance import Provenance, read_provenance
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


WORKLOADS = {
    "toys.jobs:Countdown": (
        {"pause_ms": [1]},
        lambda levels: float(levels["pause_ms"]),
        "iteration by iteration; the discarded job is dotted.",
    ),
    "toys.spinner:Spinner": (
        {"work": ["single"]},
        lambda levels: 2.0 if levels["work"] == "double" else 1.0,
        "iteration by iteration; warm-up is dotted.",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_caption_of_iterations_says_what_came_before_them(workload: str, tmp_path: Path) -> None:
    levels, time_of, caption = WORKLOADS[workload]
    command = SweepCommand(
        workload={"name": workload},
        measure=MeasureConfig(rounds=4, iterations=8, warmup_max=10),
        cluster=ClusterConfig(executor="inprocess"),
        sweep=SweepConfig(name="toy", designs=[DesignConfig("one_at_a_time", levels=levels)]),
        runs=str(tmp_path),
    )
    folder, _ = simulated(command, time_of, iterations=20)
    text = Path(api.open_sweep(folder.path).report()).read_text()
    assert caption in text
    assert ("warm-up" in text) == ("warm-up" in caption)


@pytest.mark.parametrize(
    "quantity",
    [
        "+37.5 %",
        "6.61x less",
        "2x more",
        "11.1 us",
        "299 MB",
        "1.5 GiB",
        "3 s",
        "-39.0 .. -23.7",
        "[0.621, 0.852]",
    ],
)
def test_a_quantity_stays_in_one_line(quantity: str) -> None:
    assert unbroken(
        f"compile=default ({quantity}), and more"
    ) == f"compile=default ({quantity}), and more".replace(quantity, quantity.replace(" ", "\xa0"))


@pytest.mark.parametrize("words", ["12 of 42 timing trials", "8 samples", "2 more, and 3 less", "a %, b"])
def test_words_behind_a_number_break_as_ever(words: str) -> None:
    assert unbroken(words) == words


def test_a_name_breaks_after_its_separators_and_stays_text() -> None:
    assert breakable("grad_checkpointing=on, <b> 3 us") == (
        "grad_<wbr>checkpointing=<wbr>on, &lt;b&gt; 3\xa0us"
    )


HOSTILE = "</td></title></script></svg><hostile onload='alert(1)'>|`&amp;"
ARM = "<hostile>a&b"


class Tags(HTMLParser):
    """Every tag and attribute of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {tag, *(name for name, _ in attrs)}


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> SweepFolder:
    """The reports of a sweep with a hostile arm, processor, option and exception."""
    sweep = SweepCommand(
        workload={"name": "toys.spinner:Spinner"},
        measure=MeasureConfig(rounds=4, iterations=8, warmup_max=10),
        cluster=ClusterConfig(executor="inprocess"),
        sweep=SweepConfig(
            name="toy", designs=[DesignConfig("arms", arms={ARM: {"work": "single"}, "wrong": {"slab": 4}})]
        ),
        runs=str(tmp_path_factory.mktemp("named")),
    )
    folder, manifest = simulated(sweep, lambda levels: 1.0 if levels["work"] == "single" else 2.0)
    failing = next(arm for arm in manifest.arms if arm.levels["slab"] == 4)
    for record in folder.path.glob("trials/*/*/record.json"):
        facts = {
            "cpu_model": HOSTILE,
            "cores": 2,
            "torch": HOSTILE,
            "python": "3.11",
            "cpu_features": [HOSTILE],
        }
        change(record, environment=facts)
    for record in folder.path.glob(f"trials/{failing.id}/*/record.json"):
        change(record, outcome="failed", failure={"type": "Error", "message": HOSTILE, "where": HOSTILE})
    comparison = compared(folder, manifest)
    provenance = Provenance(f"sweep workload.path={ARM}", HOSTILE, HOSTILE, HOSTILE, (HOSTILE,))
    trials = pl.read_parquet(folder.tables_dir / "trials.parquet")
    html.write_html(folder, manifest, comparison, trials, provenance)
    markdown.write_markdown(folder, comparison, provenance)
    return folder


def test_no_name_becomes_a_tag_of_the_page(named: SweepFolder) -> None:
    text = named.report_file.read_text()
    assert not {"hostile", "onload"} & tags(text)
    assert "&lt;hostile onload=" in text and "&lt;hostile&gt;a&amp;" in text


def test_what_is_not_escaped_would_be_noticed() -> None:
    assert {"hostile", "onload"} <= tags(f"<table><tr><td>{HOSTILE}</td></tr></table>")


def test_no_name_becomes_a_tag_or_a_cell_of_the_markdown(named: SweepFolder) -> None:
    text = named.markdown_file.read_text()
    assert r"\<hostile>a&b" in text
    assert not re.search(r"(?<![\\`=])<hostile", text)
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert blocks
    for block in blocks:
        assert len({line.count("|") - line.count(r"\|") for line in block}) == 1, block[0]


def tags(page: str) -> set[str]:
    parser = Tags()
    parser.feed(page)
    return parser.found


MADE_UP: Column[EffectResult] = Column(
    "joules",
    "energy",
    lambda result: 6.5 * result.rounds,
    lambda result: f"{6.5 * result.rounds:g} J",
    doc="what the rounds drew from the wall",
    kind=float,
    style=lambda result: Style.ALARM,
)


@pytest.fixture
def show_everywhere(command: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[str, str]]:
    """Compares a sweep of one effect in 4 rounds, and reads what everybody shows of it."""

    def show() -> dict[str, str]:
        sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 4})
        folder, manifest = simulated(sweep, cost)
        comparison = compared(folder, manifest)
        provenance = read_provenance(folder.config_file, [])
        html.write_html(folder, manifest, comparison, trials_of(folder), provenance)
        markdown.write_markdown(folder, comparison, provenance)
        console = Console(file=io.StringIO(), width=120)
        terminal_table.show(console, comparison)
        (row,) = compare_content(folder, manifest, "i").segments[0].rows()
        return {
            "terminal": console.file.getvalue(),  # type: ignore[attr-defined]
            "html": folder.report_file.read_text().partition("<body>")[2],
            "markdown": folder.markdown_file.read_text(),
            "wandb": f"{row['effects'].columns} {row['effects'].data}",
        }

    return show


def trials_of(folder: SweepFolder) -> pl.DataFrame:
    return pl.read_parquet(Path(folder.tables_dir) / "trials.parquet")


def test_a_column_declared_once_is_shown_by_terminal_page_markdown_and_wandb(
    show_everywhere: Callable[[], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effect_columns, "EFFECTS", (*effect_columns.EFFECTS, MADE_UP))
    shown = show_everywhere()
    assert "energy" in shown["terminal"] and "26 J" in shown["terminal"]
    assert (
        '<th scope="col" class="number" title="what the rounds drew from the wall">energy</th>'
        in shown["html"]
    )
    assert '<td class="number alarm">26 J</td>' in shown["html"]
    assert "| energy |" in shown["markdown"] and "| **26 J** |" in shown["markdown"]
    assert "'joules'" in shown["wandb"] and "26.0" in shown["wandb"]


def test_without_it_nobody_shows_it(show_everywhere: Callable[[], dict[str, str]]) -> None:
    for place, text in show_everywhere().items():
        assert "energy" not in text and "joules" not in text, place
