"""A statistic is added in one place, and everybody who shows the table of effects shows it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from measured import compared, cost, simulated
from rich.console import Console

from perfsweep.pipelines.analysis import effect_columns
from perfsweep.pipelines.analysis.columns import Column, Style
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.publish.comparison_run import compare_content
from perfsweep.pipelines.report import html, markdown, terminal_table
from perfsweep.pipelines.store.provenance import read_provenance
from perfsweep.pipelines.store.records import SweepFolder

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
