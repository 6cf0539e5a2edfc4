"""A verdict derived step by step from the records: the same figures as in the table, and each bar it met."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from measured import change, compared, cost, simulated, with_everything

from pipelines.analysis.compare import Comparison
from pipelines.config.types import DesignConfig
from pipelines.report.explanation import CODES, explanation, pair_table, row_of
from pipelines.statistics.verdicts import ReasonCode
from workloads.errors import ConfigError

Measured = Callable[..., Comparison]


@pytest.fixture
def measured(command) -> Measured:
    def run(rounds: int = 10, placebo: int = 0) -> Comparison:
        design = DesignConfig("one_at_a_time", levels={"work": ["single"], "slab": [2]})
        return compared(*simulated(command(design, measure={"rounds": rounds, "placebo": placebo}), cost))

    return run


def text_of(comparison: Comparison, row: str) -> str:
    return "\n".join(explanation(comparison, row_of(comparison, row)))


def test_a_called_effect_is_derived_from_its_pairs(measured: Measured) -> None:
    comparison = measured(placebo=1)
    row = row_of(comparison, "work=single")
    assert len(pair_table(row).rows) == row.rounds == 10
    text = text_of(comparison, "work=single")
    for step in (
        "work=single (one at a time): faster [called_faster]",
        "arm work=single against its base baseline",
        "clock: wall time",
        "results: identical",
        "from 10 pairs",
        "95 % interval",
        "Holm",
        "margin: 1.0 %",
        "floor: placebos, which equal the reference, show up to",
        "so: the corrected interval lies wholly below the margin",
        "half the work is twice as fast",
    ):
        assert step in text, step


def test_a_row_is_named_by_its_number_in_the_tables_or_by_its_name(measured: Measured) -> None:
    comparison = measured()
    fastest = row_of(comparison, "1")
    assert fastest is row_of(comparison, "work=single")
    assert row_of(comparison, "2") is row_of(comparison, "slab=2 (one at a time)")


def test_an_unknown_row_is_refused_with_the_choices(measured: Measured) -> None:
    with pytest.raises(
        ConfigError, match=r"no row typo; choose from: 1 work=single \(one at a time\), 2 slab"
    ):
        row_of(measured(), "typo")


def test_a_name_of_several_designs_is_refused_with_the_choices(tmp_path) -> None:
    comparison = compared(*with_everything(tmp_path, iterations=0))
    with pytest.raises(ConfigError, match="several rows are called work=single"):
        row_of(comparison, "work=single")
    assert row_of(comparison, "work=single (factorial)").effect.design == "factorial"


def test_a_row_without_a_time_says_why(tmp_path) -> None:
    comparison = compared(*with_everything(tmp_path, iterations=0))
    text = text_of(comparison, "slab=64")
    assert "slab=64 (ladder): oom [no_time]" in text and "CUDA out of memory" in text
    assert "Holm" not in text


def test_what_is_held_back_says_so(measured: Measured) -> None:
    text = text_of(measured(rounds=1), "work=single")
    assert "held back [too_few_rounds]" in text and "one round has no interval" in text


@pytest.mark.parametrize("code", ReasonCode)
def test_every_reason_has_words(code: ReasonCode) -> None:
    assert CODES[code]


def test_pairs_name_their_servers_by_number(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 6})
    folder, manifest = simulated(sweep, cost)
    for record in folder.path.glob("trials/*/p*-r*/record.json"):
        change(record, server=10**12 + int(record.parent.name.split("-")[1][1:]) // 2)
    row = row_of(compared(folder, manifest), "work=single")
    assert [pair.server for pair in pair_table(row).rows] == [1, 1, 2, 2, 3, 3]
