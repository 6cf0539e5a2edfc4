"""What docs/json.md says of objects and tables, read from its Markdown and held against what was printed."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any

from documented import ROOT

PAGE = ROOT / "docs" / "json.md"

Fields = dict[str, str]
"""Types as the page words them, by the names of fields."""

_KINDS: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "integer": (int,),
    "number": (int, float),
    "true or false": (bool,),
    "object": (dict,),
    "list of objects": (list,),
    "list of texts": (list,),
}


def described(option: str) -> dict[str, Fields]:
    """Fields of the objects that an option prints, by where they stand in it; "" is the whole."""
    _, heading, rest = PAGE.read_text().partition(f"\n## {option}\n")
    assert heading, f"{PAGE.name} has no section {option}"
    sections = re.split(r"^### (.+)$", rest.partition("\n## ")[0], flags=re.MULTILINE)
    tables = dict(zip(["", *sections[1::2]], sections[::2], strict=True))
    fields = {path: _fields(text) for path, text in tables.items()}
    for path, text in tables.items():
        if other := re.search(r"^\| \.\.\. \| \| as `(.+)` \|$", text, re.MULTILINE):
            fields[path] = fields[other[1]]
    return fields


def _fields(text: str) -> Fields:
    return dict(re.findall(r"^\| `(\w+)` \| (.+?) \| .+ \|$", text, re.MULTILINE))


def differences(option: str, printed: str) -> list[str]:
    """Everything in which an object that was printed is not as the page says."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return list(_differences(json.loads(printed, parse_constant=refuse), "", described(option)))


def _differences(value: dict[str, Any], path: str, page: dict[str, Fields]) -> Iterator[str]:
    known = page.get(path.lstrip("."))
    if known is None:
        yield f"{path} is not on the page"
        return
    yield from (f"{path}.{name} is missing" for name in known.keys() - value.keys())
    yield from (f"{path}.{name} is not on the page" for name in value.keys() - known.keys())
    for name in known.keys() & value.keys():
        yield from _of_field(value[name], known[name], f"{path}.{name}", page)


def _of_field(value: Any, kind: str, path: str, page: dict[str, Fields]) -> Iterator[str]:
    plain = kind.removesuffix(" or null")
    if value is None:
        if plain == kind:
            yield f"{path} is null"
    elif not isinstance(value, _KINDS[plain]) or (isinstance(value, bool) and plain != "true or false"):
        yield f"{path} is {value!r}, and no {plain}"
    elif plain == "object":
        yield from _differences(value, path, page)
    elif plain == "list of objects":
        for one in value:
            yield from _differences(one, f"{path}[]", page)
    elif plain == "list of texts":
        yield from (f"{path} holds {one!r}" for one in value if not isinstance(one, str))


def table(printed: str) -> list[dict[str, str]]:
    """Read CSV that was printed."""
    return list(csv.DictReader(io.StringIO(printed)))
