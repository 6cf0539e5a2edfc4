"""Write the reference of the JSON objects and CSV tables from their declarations.

``PYTHONPATH=tests/support python -m json_page`` prints the page that lies in ``docs/json.md``.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import Any, Union, get_args, get_origin, get_type_hints

from perfsweep.pipelines.analysis.columns import Column, file_columns
from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.pipelines.report import arm_history, comparison_object
from perfsweep.pipelines.report.arm_history import HistoryObject
from perfsweep.pipelines.report.comparison_object import ComparisonObject
from perfsweep.pipelines.report.progress_display import SweepStatus
from perfsweep.pipelines.report.tables import Rows
from perfsweep.pipelines.statistics.claim_rules import Ruling
from perfsweep.pipelines.statistics.verdicts import ReasonCode, Verdict
from perfsweep.pipelines.store.records import Outcome

_INTRODUCTION = """# Answers for programs

```sh
perfsweep compare runs/digits-demo --json
perfsweep compare runs/digits-demo --against baselines/june.json --csv
perfsweep status runs/digits-demo --json
perfsweep history baselines/june.json runs/digits-demo --json
```

With `--json` a command prints one JSON object on stdout and nothing else; with `--csv` a table under a line of names, whose
first column `schema` is the same in every row. Sentences for people, such as where the report lies, go to stderr. The exit
status is that of the command without the option ([index.md](index.md#exit-status)); of a mistake (2) stdout stays empty.

Every object names its `schema` with a version. Under one version fields may be added; none changes its meaning, goes away, or
becomes null where it was not. No field is left out: null says that there is nothing to say, or that a number is not finite. NaN
and infinity are never printed; CSV leaves such cells empty.

Units are in names: `_ns`, `_s` and `_bytes`. A `ratio` is a time by another one: 0.8 is 20 % less. `low` and `high` are the
ends of its interval.

This page is written by `PYTHONPATH=tests/support python -m json_page > docs/json.md`, from the declarations in
`pipelines/report` and `pipelines/analysis`.
"""  # noqa: E501

_VERSIONS = """## judge as JSON

| field | is |
|---|---|
| `schema` | `perfsweep.judge/2` |
| `workload` | what is measured, as its folders are called |
| `compares` | `commit` or `environment` |
| `base`, `head` | `name` as typed, and `commit`: the full hash, null for `worktree` and for environments |
| `verdict` | `faster`, `slower`, `no difference`, `different results`, `fewer units`, `failed` or `undecided` |
| `results` | `identical`, `within tolerance`, `equivalent over seeds`, `different`, `other data`, `unchecked` or `same code` |
| `exit` | the exit status |
| `ratio`, `low`, `high`, `level` | time of head / time of base with its interval, and the interval's level; null without times |
| `margin` | relative difference that is none |
| `rounds`, `seconds`, `budget_s` | rounds that measured both; seconds that the command took; the budget |
| `reason` | why it is undecided, different or failed; may be empty |
| `deviation` | of different results the check that is furthest off; else empty |
| `rounds_needed`, `seconds_needed` | rounds, and seconds of trials, that would decide an undecided answer, if the estimate stayed; null where none is known |
| `sweep` | folder with the records and `report.html`; empty where nothing was measured |

## bisect --json

| field | is |
|---|---|
| `schema` | `perfsweep.bisect/1` |
| `workload` | what is measured, as its folders are called |
| `good`, `bad` | `name` as typed, and `commit`: the full hash |
| `find` | `slower`, `faster` or `different` |
| `verdict`, `exit` | `found`, `range`, `nothing to find` or `undecided`; the exit status |
| `first` | the commit that was found: `commit`, `subject`, `parents`; null unless *found* |
| `suspects` | commits, one of which it is, oldest first |
| `commits`, `candidates` | commits after GOOD up to BAD; of these the commits with other code than the commit before |
| `margin`, `seconds` | relative difference that is none; seconds that the command took |
| `steps` | in their order: `commit`, `subject`, `mark` (`with`, `without`, `skipped` or `undecided`), and `judge`, the object of `perfsweep judge` |
"""  # noqa: E501
"""Objects of `Answer` and `BisectAnswer`, which are not declared field by field."""

_OBJECTS = {"compare --json": ComparisonObject, "status --json": SweepStatus, "history --json": HistoryObject}
"""Options with what they print."""

_TABLES: dict[str, tuple[str, tuple[Column, ...], str]] = {
    "compare --csv": (
        comparison_object.CSV_SCHEMA,
        (),
        "A row for each effect: after `schema` come the fields of [effects](#effects), in their order.",
    ),
    "compare --against --csv": (
        arm_history.AGAINST_CSV_SCHEMA,
        (arm_history.THEN, *arm_history.change_columns("reference")),
        "A row for each arm and each of the other sweeps.",
    ),
    "history --csv": (
        arm_history.CSV_SCHEMA,
        (arm_history.ARM, *arm_history.version_columns("reference")),
        "A row for each arm and version.",
    ),
}
"""Options with schema, columns and a sentence about the rows."""

_WORDS: dict[str, type[StrEnum]] = {
    "verdict": Verdict,
    "reason": ReasonCode,
    "parity": ParityVerdict,
    "ruling": Ruling,
    "outcome": Outcome,
}
"""Fields of effects, claims and failures whose words are known, with what they are."""

_NAMES = {str: "text", int: "integer", float: "number", bool: "true or false"}
"""Types as they are called in JSON."""

_HEAD = ("| field | type | is |", "|---|---|---|")


@dataclass(frozen=True)
class _Section:
    """The fields of an object, and its path within the whole."""

    path: str
    lines: tuple[str, ...]


def page() -> str:
    """Write the page in Markdown."""
    parts = [_INTRODUCTION, _words()]
    for option, declared in _OBJECTS.items():
        parts.append(f"## {option}\n")
        for section in _sections(declared, ""):
            heading = [f"### {section.path}", ""] if section.path else []
            parts.append("\n".join([*heading, *_HEAD, *section.lines, ""]))
    for option, (schema, columns, sentence) in _TABLES.items():
        first = f"| `schema` | text | `{schema}` |"
        lines = [f"## {option}", "", sentence, "", *_HEAD, first, *_of_columns(columns, "empty"), ""]
        parts.append("\n".join(lines))
    return "\n".join([*parts, _VERSIONS])


def _words() -> str:
    lines = ["## Words", "", "| field | is one of |", "|---|---|"]
    for name, words in _WORDS.items():
        lines.append(f"| `{name}` | {', '.join(f'`{one.value}`' for one in words)} |")
    more = (
        "An effect without a time has no `verdict`, and its `outcome` says why: one of these, `base` before"
        " one, or `other data`.\nIt is empty where no round is finished yet."
        "\nFor `held back` people read why: *too noisy*, *too few rounds*, *unlike regions* or *only a look*."
    )
    return "\n".join([*lines, "", more, ""])


def _sections(declared: type[Any], path: str) -> Iterator[_Section]:
    """Describe an object, and then those within it, down to rows."""
    hints = get_type_hints(declared)
    inner: list[_Section] = []
    lines = []
    for one in fields(declared):
        doc, kind = one.metadata["doc"], hints[one.name]
        lines.append(f"| `{one.name}` | {_type(kind)} | {doc} |")
        place = f"{path}.{one.name}" if path else one.name
        if columns := one.metadata["columns"]:
            inner.append(_Section(f"{place}[]", tuple(_of_columns(columns))))
        elif nested := _nested(kind):
            inner += _sections(nested, place + "[]" * (get_origin(kind) is tuple))
    yield _Section(path, tuple(lines))
    yield from _once(inner)


def _once(sections: Iterable[_Section]) -> Iterator[_Section]:
    """Leave out rows that have been described."""
    known: dict[tuple[str, ...], str] = {}
    for section in sections:
        if (other := known.setdefault(section.lines, section.path)) == section.path:
            yield section
        else:
            yield _Section(section.path, (f"| ... | | as `{other}` |",))


def _of_columns(columns: Iterable[Column], nothing: str = "null") -> list[str]:
    return [
        f"| `{one.key}` | {_NAMES[one.kind]} or {nothing} | {one.doc} |"
        for one in file_columns(tuple(columns))
    ]


def _type(hint: Any) -> str:
    """Name a type as JSON does."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    names = [_plain(one) for one in options if one is not type(None)]
    return " or ".join([*names, *(["null"] if type(None) in options else [])])


def _plain(hint: Any) -> str:
    if get_origin(hint) is Rows or hint is Rows:
        return "list of objects"
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        return "list of objects" if is_dataclass(inner) else f"list of {_NAMES[inner]}s"
    return "object" if is_dataclass(hint) else _NAMES[hint]


def _nested(hint: Any) -> type[Any] | None:
    """The class of an object, or of a list of them; None of plain values."""
    for one in (hint, *get_args(hint)):
        if is_dataclass(one) and isinstance(one, type) and one is not Rows:
            return one
    return None


if __name__ == "__main__":
    print(page(), end="")
