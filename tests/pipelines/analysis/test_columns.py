"""Columns: what people read in them, what the file holds, and who gets which."""

from __future__ import annotations

import polars as pl
import pytest

from perfsweep.pipelines.analysis.arm_columns import ARMS
from perfsweep.pipelines.analysis.arm_records import Scaling, Work
from perfsweep.pipelines.analysis.columns import Column, Where, parquet_table, visible_columns
from perfsweep.pipelines.analysis.effect_columns import EFFECTS
from perfsweep.pipelines.analysis.effect_result import EffectResult
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.store.schema import Effect

NUMBER: Column[float | None] = Column("size", "size", lambda row: row, kind=float)


def effect(verdict: Verdict | None = None, **fields: object) -> EffectResult:
    made = Effect(id="e", design="one_at_a_time", toggle="compile", level="default", pairs=(("a", "b"),))
    return EffectResult(made, "compile=default", "baseline", verdict, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("columns", [EFFECTS, ARMS], ids=["effects", "arms"])
def test_every_key_is_that_of_one_column_and_every_column_is_for_somebody(
    columns: tuple[Column, ...],
) -> None:
    keys = [column.key for column in columns]
    assert len(set(keys)) == len(keys)
    for column in columns:
        assert column.value or Where.FILE not in column.where or column.text, column.key
        assert column.value or column.text, column.key


@pytest.mark.parametrize(
    ("cold", "warm", "texts"),
    [
        (11.52, 2.14, ["11.5 s", "2.1 s"]),
        (11.5, 0.0, ["11.5 s", "0.0 s"]),
        (0.0, 0.0, ["", ""]),
        (None, None, ["", ""]),
    ],
)
def test_seconds_of_compiling_are_shown_cold_and_warm_where_the_arm_compiles(
    cold: float | None, warm: float | None, texts: list[str]
) -> None:
    columns = [column for column in EFFECTS if column.key in ("compile_s", "warm_compile_s")]
    assert [column.cell(effect(compile_s=cold, warm_compile_s=warm)) for column in columns] == texts


@pytest.mark.parametrize(("verdict", "says"), [(Verdict.HELD_BACK, ", too noisy"), (Verdict.FASTER, "")])
def test_the_efficiency_of_a_time_that_is_held_back_is_held_back_too(verdict: Verdict, says: str) -> None:
    (column,) = [column for column in EFFECTS if column.key == "efficiency"]
    found = effect(scaling=Scaling(4, 1, Work.STRONG, 0.62, 0.5, 0.7), verdict=verdict)
    assert column.cell(found) == f"62% (4 ranks, strong){says}"


def test_an_optional_column_is_shown_where_any_row_says_something() -> None:
    def headings(*rows: EffectResult) -> list[str]:
        return [column.heading for column in visible_columns(EFFECTS, rows, Where.HTML)]

    assert "compile" not in headings(effect(), effect())
    assert "compile" in headings(effect(), effect(compile_s=2.0))
    assert "trials" not in headings(effect(trials={"ok": 9}), effect(trials={"unsupported": 1}))
    assert "trials" in headings(effect(trials={"ok": 9}), effect(trials={"ok": 8, "oom": 1}))


def test_a_value_without_a_text_of_its_own_reads_as_it_is() -> None:
    assert [NUMBER.cell(value) for value in (None, 0.25, 12345.678)] == ["", "0.25", "1.235e+04"]


def test_types_of_the_file_do_not_depend_on_its_rows() -> None:
    assert parquet_table([NUMBER], [None] * 200 + [1.5])["size"].to_list()[-1] == 1.5
    empty, full = parquet_table(EFFECTS, [effect()]), parquet_table(EFFECTS, [effect(ratio=0.5, p=0.1)])
    assert empty.schema == full.schema
    assert {"ratio": pl.Float64, "rounds": pl.Int64, "verdict": pl.String}.items() <= full.schema.items()
