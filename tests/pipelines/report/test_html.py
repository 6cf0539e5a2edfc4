"""The page of a report: which pictures it has, how captions say to read them, and where its text breaks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import polars as pl
import pytest
from measured import change, compared, simulated

from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.collect import TRIALS
from perfsweep.pipelines.analysis.columns import parquet_table
from perfsweep.pipelines.analysis.compare import Comparison, Reference
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
from perfsweep.pipelines.report import html, markdown
from perfsweep.pipelines.report.html import unbroken
from perfsweep.pipelines.report.sentences import level_texts
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.provenance import Provenance, read_provenance
from perfsweep.pipelines.store.records import Effect, SweepFolder
from perfsweep.workloads.api import Device, Parity

Page = Callable[..., str]
NO_TRIALS: pl.DataFrame = parquet_table(TRIALS, [])


@pytest.fixture
def markup(command: Callable) -> Page:
    """Writes the page of a comparison without trials, and gives its body without drawings."""

    def write(comparison: Comparison) -> str:
        manifest = plan.make_plan(
            command(DesignConfig("one_at_a_time", levels={"work": ["single"], "slab": [2, 4]})), Device()
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
            {
                "effects": (effect("x", Verdict.FASTER, 0.5), effect("y", Verdict.HELD_BACK, 0.9)),
                "arms": (arm("base", 2000.0, 2**20), arm("x", 1000.0, 2**20), arm("y", 900.0, 2**20)),
            },
            ["Times are those of paired rounds", STAY, SQUARES, "takes longer or needs more memory by more"],
            [CROSSES],
        ),
        (
            {"arms": tuple(replace(one, quantities={"energy": 2.0, "cost": 7.0}) for one in ARMS)},
            [
                STAY,
                "every other arm takes longer, draws more energy, or costs more, by more than the margin.",
            ],
            [CROSSES, SQUARES],
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
    assert [words for words in [*lacks, "Frontier"] if words in text] == [], (
        "sizes that are no ladder have none"
    )


def test_effects_stand_below_the_heading_of_what_to_do_and_conclusions_come_next(markup: Page) -> None:
    fast, slow = effect("x", Verdict.FASTER, 0.5), effect("<y>", Verdict.SLOWER, 1.25)
    open_one = replace(effect("z", Verdict.UNDECIDED, 0.99), note="few [rounds]")
    own = {"fastest": fast, "winners": (fast,), "workload": "toy", "noise": ("a <noisy> machine",)}
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


def test_iterations_are_drawn_of_the_baseline_and_of_the_fastest_whose_time_counts(command: Callable) -> None:
    manifest = plan.make_plan(command(DesignConfig("one_at_a_time", levels={"work": ["single"]})), Device())
    (baseline,) = manifest.sweep.references.values()
    arms = (
        arm("slow", 9.0, 1),
        arm("x", 3.0, 1),
        arm("fast", 2.0, 1),
        arm("none", None, 1),
        arm("p", 1.0, 1),
    )
    placebo = effect("p", Verdict.NO_DIFFERENCE, 1.0)
    placebo = replace(placebo, effect=placebo.effect.model_copy(update={"design": "placebo"}))
    for wrong, fastest in ((False, "fast"), (True, "x")):
        effects = (effect("fast", Verdict.DIFFERENT if wrong else Verdict.FASTER, 0.5, not wrong), placebo)
        drawn = html.baseline_and_fastest(manifest, replace(WHOLE, effects=effects, arms=arms))
        assert drawn == [baseline, fastest]


@pytest.mark.parametrize("quantity", ["6.61x less", "-39.0 .. -23.7", "[0.621, 0.852]"])
def test_a_quantity_stays_in_one_line(quantity: str) -> None:
    assert unbroken(
        f"compile=default ({quantity}), and more"
    ) == f"compile=default ({quantity}), and more".replace(quantity, quantity.replace(" ", "\xa0"))


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
