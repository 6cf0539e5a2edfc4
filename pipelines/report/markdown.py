"""Comparisons as Markdown: the report, and the comment on a pull request."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from perfsweep.pipelines.analysis.columns import Column, Style, T, Where
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.report.profile_tables import PROFILE_HEADINGS, LinkedProfile, linked_profiles
from perfsweep.pipelines.report.sentences import (
    COMMANDS,
    conclusions,
    footnotes,
    headline,
    open_questions,
    opening,
)
from perfsweep.pipelines.report.tables import Table, answer_tables, arms_table
from perfsweep.pipelines.report.version_answer import duration_of
from perfsweep.pipelines.store.files import write_atomically
from perfsweep.pipelines.store.provenance import Provenance
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.pipelines.units import bounds_text, speed


def write_markdown(folder: SweepFolder, comparison: Comparison, provenance: Provenance) -> None:
    """Write report.md."""
    tables = [*answer_tables(comparison, Where.MARKDOWN), arms_table(comparison, Where.MARKDOWN)]
    parts = [
        f"# {comparison.name}",
        _as_text(opening(comparison)),
        _list(f"**!** {one}" for one in comparison.noise),
    ]
    for table in (one for one in tables if one.of_effects):
        parts += [f"## {table.title}", markdown_table(table)]
    follows = [_list(open_questions(comparison)), _list(_conclusions(comparison))]
    parts += ["## Answer", *follows] if any(follows) else []
    for table in (one for one in tables if not one.of_effects):
        parts += [f"## {table.title}", markdown_table(table)]
    if profiles := linked_profiles(folder):
        parts += ["## Profiles", grid(PROFILE_HEADINGS, map(_profile_cells, profiles))]
    if notes := footnotes(comparison):
        parts += ["## Notes", _list(notes)]
    parts += ["## Where this comes from", _list(_provenance_lines(provenance))]
    write_atomically(folder.markdown_file, ("\n\n".join(filter(None, parts)) + "\n").encode())


def _conclusions(comparison: Comparison) -> Iterator[str]:
    for label, text in conclusions(comparison):
        yield f"**{label}:** `{text}`" if label in COMMANDS else f"**{label}:** {text}"


def _profile_cells(profile: LinkedProfile) -> tuple[str, ...]:
    files = ", ".join(f"[{name}]({quote(address)})" for name, address in profile.files)
    return (profile.arm, profile.what, profile.most, profile.cost, files)


def _provenance_lines(provenance: Provenance) -> list[str]:
    return [
        f"command: `{provenance.command}`",
        f"commit: {provenance.commit}",
        f"versions: {provenance.versions}",
        f"machine: {provenance.machine}",
        *(f"not the same in all trials: {line}" for line in provenance.differing),
    ]


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {_as_text(line)}" for line in lines)


def markdown_table(table: Table) -> str:
    """Write a table's rows under its headings."""
    rows: list[list[str]] = []
    for heading, own in table.grouped():
        rows += [[f"**{heading}**", *[""] * (len(table.columns) - 1)]] if heading else []
        rows += [[_cell(column, row) for column in table.columns] for row in own]
    return grid([column.heading for column in table.columns], rows)


def _cell(column: Column[T], row: T) -> str:
    text = column.cell(row)
    return f"**{text}**" if text and column.style(row) is Style.ALARM else text


def grid(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write cells under headings."""
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    lines += [f"| {' | '.join(_escape(text) for text in row)} |" for row in rows]
    return "\n".join(lines)


def _escape(text: str) -> str:
    return _as_text(text.replace("|", "\\|").replace("\n", "; ").replace("\u00a0", " "))


def _as_text(line: str) -> str:
    return _TAG.sub(r"\\<", line)


_TAG = re.compile(r"(?<!`)<(?=[A-Za-z/!?])")  # a reader of Markdown would drop `<class 'int'>` from a message

MARK = "<!-- perfsweep -->"
"""Begins the comment, so that the next run finds it and writes over it."""

HEADINGS = ("workload", "verdict", "time", "95 % interval", "results", "measured")

_WORST = ("failed", "different results", "fewer units", "slower", "undecided", "no difference", "faster")
"""Verdicts, what a reader must know of first."""

_ALARMS = _WORST[:4]

_UNCOUNTED = ". Its time does not count."
_TOLD = {
    "different results": ("Results that changed", _UNCOUNTED),
    "fewer units": ("What does less work", _UNCOUNTED),
    "failed": ("What does not run", ""),
    "undecided": ("Undecided", ""),
}

Judged = Mapping[str, Any]
"""An object that `perfsweep judge --json` printed; docs/json.md has its fields."""


def comment(answers: Sequence[Judged]) -> str:
    """Write the comment on one or several workloads, all of the same two versions or not."""
    worst = min((str(one["verdict"]) for one in answers), key=_WORST.index)
    parts = [MARK, f"### perfsweep: {worst}", _versions(answers), grid(HEADINGS, map(_row, answers))]
    return "\n\n".join([*parts, *_sections(answers), _footer(answers)]) + "\n"


def _sections(answers: Sequence[Judged]) -> Iterator[str]:
    """Below a heading for each verdict that needs a word: why it is so, and what would help."""
    for verdict, (title, more) in _TOLD.items():
        told = [one for one in answers if one["verdict"] == verdict]
        why = (_plain(one.get("deviation") or one["reason"] or verdict) for one in told)
        lines = [
            f"- {_workload(one)}: {text}{more}{_remedy(one)}" for one, text in zip(told, why, strict=True)
        ]
        if lines:
            yield "\n".join([f"**{title}**\n", *lines])


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
    measured = f"{answer['rounds']} rounds in {duration_of(answer['seconds'])}"
    return (
        _workload(answer),
        f"**{verdict}**" if verdict in _ALARMS else verdict,
        speed(ratio) if counts else "",
        bounds_text(ratio, low, high) if counts else "",
        f"**{answer['results']}**" if verdict == "different results" else str(answer["results"]),
        measured if answer["rounds"] else "",
    )


def _workload(answer: Judged) -> str:
    return _code(str(answer.get("workload") or "workload"))


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
    """A text that ends no table cell, opens no tag and mentions no user."""
    flat = " ".join(str(text).split())
    return flat.replace("<", "&lt;").replace("@", "@\u200b")


_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "\u00a0": "~",
    "\n": ", ",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_SPECIAL = re.compile("|".join(map(re.escape, _ESCAPES)))


def effects_latex(comparison: Comparison) -> str:
    """Write each table of effects as a tabular, with what was measured as a comment above."""
    tables = [table for table in answer_tables(comparison, Where.TERMINAL) if table.of_effects]
    head = " ".join(f"{comparison.name}: {headline(comparison)}".split())
    return "\n\n".join([f"% {head}", *map(latex_table, tables)]) + "\n"


def latex_table(table: Table) -> str:
    """Write a table's rows under its headings; numbers on the right."""
    columns = table.columns
    lines = [f"% {' '.join(table.title.split())}"]
    lines += [f"\\begin{{tabular}}{{{''.join('r' if one.number else 'l' for one in columns)}}}", r"\hline"]
    lines += [_latex_row([latex_text(one.heading) for one in columns]), r"\hline"]
    for heading, rows in table.grouped():
        if heading:
            lines += [f"\\multicolumn{{{len(columns)}}}{{l}}{{\\textbf{{{latex_text(heading)}}}}} \\\\"]
        lines += [_latex_row([latex_text(one.cell(row)) for one in columns]) for row in rows]
    return "\n".join([*lines, r"\hline", r"\end{tabular}"])


def _latex_row(cells: list[str]) -> str:
    # A row that begins with a bracket would be read as the spacing of the row before it.
    return " & ".join("{}" + cell if cell.startswith("[") else cell for cell in cells) + r" \\"


def latex_text(text: str) -> str:
    """Write a text so that LaTeX prints it as it is."""
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], text)
