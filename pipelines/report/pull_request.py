"""The comment on a pull request, as Markdown, from what `perfsweep judge --json` wrote."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfsweep.pipelines.report.markdown import grid
from perfsweep.pipelines.report.version_answer import duration_of
from perfsweep.pipelines.units import bounds_text, percent

MARK = "<!-- perfsweep -->"
"""Begins the comment, so that the next run finds it and writes over it."""

HEADINGS = ("workload", "verdict", "time", "95 % interval", "results", "measured")

_WORST = ("failed", "different results", "fewer units", "slower", "undecided", "no difference", "faster")
"""Verdicts, what a reader must know of first."""

_ALARMS = _WORST[:4]

Judged = Mapping[str, Any]
"""An object that `perfsweep judge --json` printed; docs/versions.md has its fields."""


def comment(answers: Sequence[Judged]) -> str:
    """Write the comment on one or several workloads, all of the same two versions or not."""
    worst = min((str(one["verdict"]) for one in answers), key=_WORST.index)
    parts = [MARK, f"### perfsweep: {worst}", _versions(answers), grid(HEADINGS, map(_row, answers))]
    parts += _section("Results that changed", _changed(answers))
    parts += _section("What does less work", _did_less(answers))
    parts += _section("What does not run", _failed(answers))
    parts += _section("Undecided", _undecided(answers))
    return "\n\n".join([*parts, _footer(answers)]) + "\n"


def _versions(answers: Sequence[Judged]) -> str:
    pairs = dict.fromkeys((_side(one["head"]), _side(one["base"])) for one in answers)
    each = ", ".join(f"{head} against {base}" for head, base in pairs)
    return f"{each}, measured in turn on one machine."


def _side(side: Mapping[str, Any]) -> str:
    name = _code(str(side["name"]))
    return f"{name} ({side['commit'][:10]})" if side["commit"] else name


def _row(answer: Judged) -> tuple[str, ...]:
    verdict = str(answer["verdict"])
    ratio, low, high = answer["ratio"], answer["low"], answer["high"]
    counts = verdict not in ("different results", "fewer units", "failed")
    measured = f"{answer['rounds']} rounds in {duration_of(answer['seconds'])}, {answer['clock']}"
    return (
        _workload(answer),
        f"**{verdict}**" if verdict in _ALARMS else verdict,
        percent(ratio) if counts else "",
        bounds_text(ratio, low, high) if counts else "",
        f"**{answer['results']}**" if verdict == "different results" else str(answer["results"]),
        measured if answer["rounds"] else "",
    )


def _workload(answer: Judged) -> str:
    return _code(str(answer.get("workload") or "workload"))


def _section(title: str, lines: Iterator[str]) -> list[str]:
    """A heading with its lines; nothing where there are none."""
    found = "\n".join(f"- {line}" for line in lines)
    return [f"**{title}**\n\n{found}"] if found else []


def _changed(answers: Sequence[Judged]) -> Iterator[str]:
    for one in answers:
        if one["verdict"] == "different results":
            why = one.get("deviation") or one["reason"] or one["results"]
            yield f"{_workload(one)}: {_plain(why)}. Its time does not count."


def _did_less(answers: Sequence[Judged]) -> Iterator[str]:
    for one in answers:
        if one["verdict"] == "fewer units":
            why = one["reason"] or "it ended with fewer units done than the base"
            yield f"{_workload(one)}: {_plain(why)}. Its time does not count."


def _failed(answers: Sequence[Judged]) -> Iterator[str]:
    for one in answers:
        if one["verdict"] == "failed":
            yield f"{_workload(one)}: {_plain(one['reason'] or one['verdict'])}"


def _undecided(answers: Sequence[Judged]) -> Iterator[str]:
    for one in answers:
        if one["verdict"] == "undecided":
            yield f"{_workload(one)}: {_plain(one['reason'] or 'no reason is known')}{_remedy(one)}"


def _remedy(answer: Judged) -> str:
    """The budget that would do: a tenth more, in whole tens of seconds, of which none is less than that."""
    if not (seconds := answer.get("seconds_needed")):
        return ""
    return f". `measure.budget_s={math.ceil(seconds * 1.1 / 10) * 10}` allows for that"


def _footer(answers: Sequence[Judged]) -> str:
    margin = max(one["margin"] for one in answers)
    return f"<sub>Less than {margin * 100:g} % either way is no difference.</sub>"


def _code(text: str) -> str:
    """A name as code, whatever it holds."""
    return f"`{_plain(text).replace('`', chr(39))}`"


def _plain(text: str) -> str:
    """A text that ends no table cell, opens no tag and mentions nobody."""
    flat = " ".join(str(text).split())
    return flat.replace("<", "&lt;").replace("@", "@\u200b")
