"""What users and their exceptions call things stays text: in the page, its pictures and in Markdown."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import polars as pl
import pytest
from measured import change, compared, simulated

from perfsweep.pipelines.config.types import (
    ClusterConfig,
    DesignConfig,
    MeasureConfig,
    SweepCommand,
    SweepConfig,
)
from perfsweep.pipelines.report import html, markdown
from perfsweep.pipelines.store.provenance import Provenance
from perfsweep.pipelines.store.records import SweepFolder

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
