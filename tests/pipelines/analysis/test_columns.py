"""Columns of arms and effects: what people read in them, what the file holds, and who gets which."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from perfsweep.pipelines.analysis.arm_records import Scaling, Work
from perfsweep.pipelines.analysis.arm_results import ARMS, ArmResult
from perfsweep.pipelines.analysis.columns import Column, Where, parquet_table, row_values, visible_columns
from perfsweep.pipelines.analysis.effect_columns import EFFECTS
from perfsweep.pipelines.analysis.effect_result import EffectResult, RuledClaim
from perfsweep.pipelines.analysis.iteration_series import PhaseShare
from perfsweep.pipelines.parity.results import Deviation, ParityResult, ParityVerdict
from perfsweep.pipelines.statistics.claim_rules import Ruling
from perfsweep.pipelines.statistics.verdicts import ReasonCode, Verdict
from perfsweep.pipelines.store.schema import Effect
from perfsweep.pipelines.units import MB
from perfsweep.workloads.api import Claim, Parity

NUMBER: Column[float | None] = Column("size", "size", lambda row: row, kind=float)


def effect(verdict: Verdict | None = None, **fields: object) -> EffectResult:
    made = Effect(id="e", design="one_at_a_time", toggle="compile", level="default", pairs=(("a", "b"),))
    return EffectResult(made, "compile=default", "baseline", verdict, **fields)  # type: ignore[arg-type]


def test_an_optional_column_is_shown_where_any_row_says_something() -> None:
    def headings(*rows: EffectResult) -> list[str]:
        return [column.heading for column in visible_columns(EFFECTS, rows, Where.HTML)]

    assert "compile" not in headings(effect(), effect())
    assert "compile" in headings(effect(), effect(compile_s=2.0))
    assert "trials" not in headings(effect(trials={"ok": 9}), effect(trials={"unsupported": 1}))
    assert "trials" in headings(effect(trials={"ok": 9}), effect(trials={"ok": 8, "oom": 1}))


def test_types_of_the_file_do_not_depend_on_its_rows() -> None:
    assert parquet_table([NUMBER], [None] * 200 + [1.5])["size"].to_list()[-1] == 1.5
    empty, full = parquet_table(EFFECTS, [effect()]), parquet_table(EFFECTS, [effect(ratio=0.5, p=0.1)])
    assert empty.schema == full.schema
    assert {"ratio": pl.Float64, "rounds": pl.Int64, "verdict": pl.String}.items() <= full.schema.items()


PHASES = (
    PhaseShare("forward", "device", 600_000.0),
    PhaseShare("backward", "host", 300_000.0),
    PhaseShare("rest", "host", 9_999.0),
)
FULL = ArmResult(
    label="amp=bf16",
    rounds=6,
    ns_per_unit=1e6,
    peak_bytes=7 * MB,
    outcomes={"ok": 9, "oom": 2},
    iteration_ns=4e6,
    phases=PHASES,
    name="tuned",
    mfu=0.123,
    id="abc",
    minor_faults=1234.4,
    major_faults=2.0,
    system_ns=5000.0,
    run_delay=0.025,
    ranks=4,
    nodes=2,
    collectives=0.3,
    straggling=0.0,
)


def cells(arm: ArmResult, where: Where = Where.HTML) -> dict[str, str]:
    return {one.key: one.cell(arm) for one in visible_columns(ARMS, [arm], where)}


def test_a_person_reads_of_an_arm() -> None:
    assert cells(FULL) == {
        "name": "tuned",
        "label": "amp=bf16",
        "ns_per_unit": "1 ms",
        "iteration_ns": "4 ms",
        "phases": "forward 600 us (device), backward 300 us",  # the rest is under a hundredth
        "rounds": "6",
        "peak_bytes": "7 MB",
        "minor_faults": "1,234",
        "run_delay": "2.5%",
        "mfu": "12.3%",
        "ranks": "4 on 2 nodes",
        "collectives": "30%",
        "straggling": "0%",
        "trials": "9 ok, 2 oom",
    }


EFFECT = Effect(
    id="e1", design="leave_one_out", toggle="amp", level="bf16", pairs=(("a", "b"),), also=("fuse", "loader")
)
CLAIM = Claim("twice as fast", "A report", "2.1", ({"amp": "bf16"},), low=2.0)
WORST = Deviation("loss", 0.02, 0.01, "worst at [3]", False)
FULL_EFFECT = EffectResult(
    EFFECT,
    "amp=bf16",
    "baseline",
    Verdict.SLOWER,
    ratio=1.1,
    low=1.05,
    high=1.15,
    p=0.001,
    rounds=6,
    method="pooled variance",
    code=ReasonCode.RESULTS_DIFFER,
    parity=ParityResult(ParityVerdict.DIFFERENT, Parity.EXACT, WORST),
    memory_bytes=-3.0 * MB,
    compile_s=12.34,
    warm_compile_s=1.26,
    break_even=120.5,
    rounds_needed=40,
    note="a note",
    rulings=(RuledClaim(CLAIM, "amp=bf16", "leave_one_out", Ruling.REFUTED),) * 2,
    trials={"ok": 6, "oom": 2},
    scaling=Scaling(4, 2, Work.WEAK, 0.625, 0.5, 0.75),
)
BARE_EFFECT = EffectResult(
    EFFECT.model_copy(update={"also": ()}), "amp=bf16", "baseline", None, outcome="oom"
)


def effect_cells(result: EffectResult, where: Where = Where.HTML) -> dict[str, str]:
    return {one.key: one.cell(result) for one in visible_columns(EFFECTS, [result], where)}


def test_a_person_reads_of_an_effect() -> None:
    assert effect_cells(FULL_EFFECT) == {
        "name": "amp=bf16 (with fuse, loader)",
        "speed": "1.10x slower",
        "interval": "1.05 .. 1.15",
        "verdict": "slower",
        "parity": "different: loss 0.02 > 0.01",
        "efficiency": "62% (4 ranks, weak)",
        "memory_bytes": "-3.0 MB",
        "compile_s": "12.3 s",
        "warm_compile_s": "1.3 s",
        "base": "baseline",
        "rounds": "6",
        "trials": "6 ok\n2 oom",
    }


def test_a_terminal_leaves_the_base_and_the_rounds_to_the_pages_and_has_all_costs_in_one_column() -> None:
    costs = {"memory_bytes", "compile_s", "warm_compile_s"}
    assert set(effect_cells(FULL_EFFECT)) - set(effect_cells(FULL_EFFECT, Where.TERMINAL)) == {
        "base",
        "rounds",
        *costs,
    }
    assert effect_cells(FULL_EFFECT, Where.TERMINAL)["cost"] == "-3.0 MB, 12.3 s to compile"
    assert effect_cells(replace(FULL_EFFECT, compile_s=0.0), Where.TERMINAL)["cost"] == "-3.0 MB"
    assert (
        effect_cells(replace(FULL_EFFECT, memory_bytes=None), Where.TERMINAL)["cost"] == "12.3 s to compile"
    )
    assert effect_cells(BARE_EFFECT, Where.TERMINAL)["cost"] == ""


def test_a_file_holds_of_an_effect() -> None:
    assert row_values(EFFECTS, FULL_EFFECT) == {
        "design": "leave_one_out",
        "on_gpu": "",
        "toggle": "amp",
        "level": "bf16",
        "also": "fuse, loader",
        "arm": "amp=bf16",
        "speed": pytest.approx(1 / 1.1),
        "speed_low": pytest.approx(1 / 1.15),
        "speed_high": pytest.approx(1 / 1.05),
        "ratio": 1.1,
        "low": 1.05,
        "high": 1.15,
        "verdict": "slower",
        "todo": "leave off",
        "reason": "results_differ",
        "outcome": "",
        "parity": "different",
        "parity_worst": 0.02,
        "parity_where": "loss worst at [3]",
        "efficiency": 0.625,
        "efficiency_low": 0.5,
        "efficiency_high": 0.75,
        "ranks": 4,
        "base_ranks": 2,
        "scaling": "weak",
        "memory_bytes": -3.0 * MB,
        "compile_s": 12.34,
        "warm_compile_s": 1.26,
        "break_even_iterations": 120.5,
        "base": "baseline",
        "rounds": 6,
        "rounds_needed": 40,
        "method": "pooled variance",
        "p": 0.001,
        "rulings": "2.1: refuted; 2.1: refuted",
        "note": "a note",
        "id": "e1",
    }
