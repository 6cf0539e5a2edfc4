"""The columns of the table of effects, each declared once.

The terminal, `report.html` and `report.md` show what `EFFECTS` declares for them, `effects.parquet` holds it,
and W&B's table has the columns of `effects.parquet`. A new statistic is one `Column` here, of a field of
`EffectResult`.
"""

from __future__ import annotations

from perfsweep.pipelines.analysis.arm_records import outcome_text
from perfsweep.pipelines.analysis.columns import (
    NAME_WIDTH,
    ON_GPU,
    Column,
    Style,
    ValueType,
    Where,
    file_column,
    own_column,
    soft,
    some,
)
from perfsweep.pipelines.analysis.effect_result import EffectResult, counts, effect_name, speed_text, todo
from perfsweep.pipelines.statistics.verdicts import Verdict
from perfsweep.pipelines.units import bounds_text, megabytes_more

VERDICT_STYLES = {
    Verdict.FASTER: Style.GOOD,
    Verdict.SLOWER: Style.BAD,
    Verdict.UNDECIDED: Style.OPEN,
    Verdict.HELD_BACK: Style.OPEN,
    Verdict.DIFFERENT: Style.ALARM,
    Verdict.FEWER_UNITS: Style.ALARM,
}
"""Of verdicts that are news; the others are soft."""


def verdict_style(result: EffectResult) -> Style:
    """The style of an effect's verdict."""
    return VERDICT_STYLES.get(result.verdict, Style.SOFT) if result.verdict else Style.SOFT


def _losses(result: EffectResult) -> str:
    """How the trials of an effect ended where they did not all end alike, which the verdict would say."""
    return outcome_text(result.trials).replace(", ", "\n") if len(result.trials) > 1 else ""


def _compile_text(result: EffectResult) -> str:
    return f"{result.compile_s:.1f} s" if result.compile_s and result.compile_s >= 0.01 else ""


def _efficiency_text(result: EffectResult) -> str:
    if (found := result.scaling) is None:
        return ""
    work = f", {found.work.value}" if found.work.value else ""
    held = f", {result.word}" if result.verdict is Verdict.HELD_BACK else ""
    return f"{found.efficiency:.0%} ({found.ranks} ranks{work}){held}"


def _warm_compile_text(result: EffectResult) -> str:
    """Nothing where the arm compiles nothing."""
    if not _compile_text(result) or result.warm_compile_s is None:
        return ""
    return f"{result.warm_compile_s:.1f} s"


def _cost_text(result: EffectResult) -> str:
    """What a terminal shows of memory and compiling."""
    compiling = f"{_compile_text(result)} to compile" if _compile_text(result) else ""
    return ", ".join(filter(None, [megabytes_more(result.memory_bytes), compiling]))


def _of_scaling(key: str, name: str, kind: ValueType, doc: str) -> Column[EffectResult]:
    return file_column(key, lambda r: getattr(r.scaling, name) if r.scaling else None, kind, doc)


EFFECTS: tuple[Column[EffectResult], ...] = (
    Column("name", "toggle", text=effect_name, where=Where.PEOPLE, width=NAME_WIDTH),
    file_column(
        "design", lambda r: r.effect.design, doc="the design that asked for it, such as `one_at_a_time`"
    ),
    file_column("toggle", lambda r: r.effect.toggle, doc="the toggle, or `a x b` for an interaction"),
    file_column("level", lambda r: r.effect.level, doc="its level, or what a listed arm is held against"),
    file_column("also", lambda r: ", ".join(r.effect.also), doc="toggles that moved along, with commas"),
    file_column("arm", lambda r: r.arm_label, doc="label of the arm, made of its levels off the baseline"),
    Column(
        "speed",
        "speed",
        lambda r: r.speed,
        speed_text,
        doc="speed of the arm against its base: 2 is twice as fast",
        kind=float,
        style=verdict_style,
    ),
    file_column("speed_low", lambda r: r.speed_low, float, "lower end of the 95 % interval of `speed`"),
    file_column("speed_high", lambda r: r.speed_high, float, "upper end"),
    file_column("ratio", lambda r: r.ratio, float, "time of the arm by its base's: 1 / `speed`"),
    file_column("low", lambda r: r.low, float, "lower end of the 95 % interval of `ratio`"),
    file_column("high", lambda r: r.high, float, "upper end"),
    Column(
        "interval",
        "95 %",
        text=lambda r: bounds_text(r.ratio, r.low, r.high) if counts(r) else "",
        where=Where.PEOPLE,
        doc="interval of the speed, from the pairs of each round",
        kind=float,
    ),
    Column(
        "verdict",
        "verdict",
        lambda r: r.verdict.value if r.verdict else None,
        lambda r: "" if r.ratio is None else r.word,
        doc="what the interval says",
        width=10,
        style=verdict_style,
    ),
    file_column("todo", lambda r: todo(r).value, doc="the heading that it has in the tables"),
    file_column(
        "reason", lambda r: r.code.value, doc="why the verdict is what it is, as a word for programs"
    ),
    file_column(
        "outcome",
        lambda r: r.outcome,
        doc="why there is no time, such as `unsupported`, `inert` or `base failed`; empty where there is one",
    ),
    Column(
        "parity",
        "results",
        lambda r: r.parity.verdict.value if r.parity else None,
        lambda r: r.parity_text,
        doc="parity with the base",
        width=10,
    ),
    file_column(
        "parity_worst",
        lambda r: r.parity.worst.value if r.parity and r.parity.worst else None,
        float,
        "the deviation of results that is largest by its bound",
    ),
    file_column(
        "parity_where",
        lambda r: f"{r.parity.worst.check} {r.parity.worst.where}" if r.parity and r.parity.worst else None,
        doc="the check that it was found by, and the tensor or number",
    ),
    Column(
        "efficiency",
        "efficiency",
        lambda r: r.scaling.efficiency if r.scaling else None,
        _efficiency_text,
        doc="gain in speed by that of ranks; strong: the same work in all, weak: the same for each rank",
        kind=float,
        optional=True,
        drop=6,
    ),
    _of_scaling("efficiency_low", "low", float, "lower end of its interval"),
    _of_scaling("efficiency_high", "high", float, "upper end"),
    _of_scaling("ranks", "ranks", int, "ranks of the arm, where it has more than its base"),
    _of_scaling("base_ranks", "base_ranks", int, "ranks of the base"),
    file_column(
        "scaling",
        lambda r: r.scaling.work.value if r.scaling else None,
        doc="what an iteration does where ranks are added: the same in all (`strong`) or for each (`weak`)",
    ),
    own_column("on_gpu", "on a GPU", doc=ON_GPU, optional=True, width=10, drop=1, style=soft),
    Column("cost", "cost", text=_cost_text, where=Where.TERMINAL, width=10),
    own_column(
        "memory_bytes", "memory", megabytes_more, where=Where.WIDE, doc="change of peak memory", kind=float
    ),
    Column(
        "compile_s",
        "compile",
        lambda r: r.compile_s,
        _compile_text,
        where=Where.WIDE,
        doc="seconds of compiling with nothing compiled yet",
        kind=float,
        optional=True,
    ),
    Column(
        "warm_compile_s",
        "warm",
        lambda r: r.warm_compile_s,
        _warm_compile_text,
        where=Where.WIDE,
        doc="seconds of compiling in a timing trial, which finds on disk what the sweep has compiled",
        kind=float,
        optional=True,
    ),
    file_column(
        "break_even_iterations",
        lambda r: r.break_even,
        float,
        "iterations that repay set-up and compiling, of an arm that is faster",
    ),
    Column(
        "base",
        "base",
        lambda r: r.base_label,
        where=Where.WIDE,
        doc="the arm that it is measured against",
        width=NAME_WIDTH,
        style=soft,
    ),
    own_column(
        "rounds", "rounds", some(str), where=Where.WIDE, doc="pairs that the interval rests on", kind=int
    ),
    Column(
        "trials",
        "trials",
        text=_losses,
        where=Where.PEOPLE,
        doc="how the trials of the row ended, of every kind and attempt, where not all ended alike",
        optional=True,
        width=9,
        drop=3,
    ),
    file_column(
        "rounds_needed",
        lambda r: r.rounds_needed,
        int,
        "rounds that would decide an undecided effect, if the estimate stayed",
    ),
    file_column("method", lambda r: r.method, doc="how the interval was estimated"),
    file_column(
        "p", lambda r: r.p, float, "two-sided p value of no effect, not corrected for the number of effects"
    ),
    file_column(
        "rulings",
        lambda r: "; ".join(f"{one.claim.section}: {one.text}" for one in r.rulings),
        doc="rulings of the claims about it",
    ),
    file_column("note", lambda r: r.note, doc="what else a reader must know of it"),
    file_column("id", lambda r: r.effect.id, doc="of the effect within the sweep"),
)
"""Of one effect each row: an arm against its base, or an interaction."""
