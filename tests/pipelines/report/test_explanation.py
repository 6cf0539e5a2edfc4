"""A verdict derived step by step from the records: the same figures as in the table, and each bar it met."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import pytest
from machines import effects_of, rounds_of
from measured import change, compared, cost, simulated, with_everything
from rich.console import Console

from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.analysis.decisions import decide
from perfsweep.pipelines.analysis.effect_result import EffectResult, RuledClaim
from perfsweep.pipelines.config.types import DesignConfig
from perfsweep.pipelines.report.explanation import CODES, explanation, pair_table, row_of, show
from perfsweep.pipelines.statistics.claim_rules import Ruling
from perfsweep.pipelines.statistics.verdicts import ReasonCode, Verdict
from perfsweep.workloads.api import Claim
from perfsweep.workloads.errors import ConfigError

Measured = Callable[..., Comparison]
RULED = RuledClaim(Claim("twice as fast", "guide", "2", ({"a": "b"},), low=2.0), "a=b", "d", Ruling.CONFIRMED)


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
        "results: identical",
        "from 10 pairs",
        "95 % interval",
        "Holm",
        "margin: 1.0 %",
        "floor: placebos, which equal the baseline, show up to",
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
    assert "too few rounds [too_few_rounds]" in text and "one round has no interval" in text


@pytest.mark.parametrize("code", ReasonCode)
def test_every_reason_has_words(code: ReasonCode) -> None:
    assert CODES[code]


def test_pairs_name_their_servers_by_number(command) -> None:
    sweep = command(DesignConfig("one_at_a_time", levels={"work": ["single"]}), measure={"rounds": 6})
    folder, manifest = simulated(sweep, cost)
    for record in folder.path.glob("trials/*/p*-r*/record.json"):
        change(record, server=10**12 + int(record.parent.name.split("-")[1][1:]) // 2)
    row = row_of(compared(folder, manifest), "work=single")
    table = pair_table(row)
    assert [pair.server for pair in table.rows] == [1, 1, 2, 2, 3, 3]
    assert [one.heading for one in table.columns if one.number] == ["server", "round", "time"]


def derived(ratio: float = 0.9, servers: int = 0, rounds: int = 6, **own: Any) -> list[str]:
    """The steps of an effect whose rounds scatter evenly about a ratio, judged among two comparisons."""
    scatter = 1 + 0.001 * np.linspace(-1, 1, rounds)
    times = rounds_of(np.array([np.ones(rounds), ratio * scatter, scatter[::-1]]), servers)
    effects = effects_of(3)
    derivation = decide(times, effects, {}, math.log1p(0.01)).derivation(effects[0], times)
    assert derivation is not None
    derivation = replace(derivation, floor=own.pop("floor", 0.0))
    result = EffectResult(effects[0], "a", "b", derivation.judgement.verdict, derivation=derivation, **own)
    return explanation(Comparison("demo", "pair", 0.05, None, (result,), (), ()), result)


def test_the_steps_say_estimate_interval_correction_margin_and_floor() -> None:
    _, _, _, estimate, interval, correction, margin, floor, _ = derived(floor=math.log(1.02))
    assert (
        estimate == "estimate: 1.11x faster from 6 pairs, 6 values that intervals may count (pooled variance)"
    )
    assert re.fullmatch(
        r"95 % interval: 1\.1\d .. 1\.1\d; standard error 0\.0\d% with [\d.]+ degrees of freedom",
        interval.replace("\u00a0", " "),
    )
    assert "among 2 comparisons Holm reads it at 97.50%: " in correction
    assert correction.endswith(", and rejects no effect")
    assert margin == "margin: 5.0 % either way makes no difference"
    assert floor == "floor: placebos, which equal the baseline, show up to 2.00%"
    assert not [line for line in derived() if line.startswith("floor")]
    assert any(line.endswith(", and keeps no effect") for line in derived(1.0))


def test_rounds_that_share_servers_say_of_how_many() -> None:
    assert derived(servers=3)[3].startswith("estimate: 1.11x faster from 6 pairs of 3 servers, 3 values that")


def test_a_single_round_stops_at_having_no_interval() -> None:
    lines = derived(rounds=1)
    assert lines[4].startswith("no interval: one round") and lines[5].startswith("so: ")


def test_the_note_and_the_rulings_are_said_where_there_are_any() -> None:
    assert derived(code=ReasonCode.NO_RECORDS, note="a note")[-1].endswith("yet (a note)")
    held = derived(note="a note", held_back="too few", rulings=(RULED,))
    assert "a note" not in held[-2] and held[-1] == "claim: twice as fast: confirmed"


def test_what_is_printed_are_the_words_as_they_are_with_the_pairs_below_the_title() -> None:
    effect = effects_of(2)[0].model_copy(update={"toggle": "[bold]", "level": "[red]"})
    times = rounds_of(np.array([[1.0, 1.0, 1.0], [0.9, 0.91, 0.92]]))
    derivation = decide(times, [effect], {}, 0.01).derivation(effect, times)
    found = EffectResult(effect, "a[0]", "b[1]", Verdict.FASTER, derivation=derivation, trials={"ok": 3})
    output = StringIO()
    show(Console(file=output, width=120), Comparison("demo", "pair", 0.01, None, (found,), (), ()), "1")
    lines = [" ".join(line.split()) for line in output.getvalue().splitlines() if line.strip()]
    assert lines[:3] == [
        "[bold]=[red] (one at a time): faster [no_records]",
        "Pairs",
        "pack server round time",
    ]
    assert lines[4].startswith("p000 0 1.11x faster")
    assert "- arm a[0] against its base b[1]; trials: 3 ok" in lines
