"""Docstrings as Markdown: what the pages of reference that are written from the code have in common."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any


def described(value: Any, section: str = "Attributes") -> dict[str, str]:
    """Read what a docstring says of each name in a section, such as `Attributes` or `Parameters`."""
    pairs = [entry.split(" : ", maxsplit=1) for entry in _entries(value, section) if " : " in entry]
    return {name: one_line(text) for names, text in pairs for name in names.split(", ")}


def raised(value: Any) -> dict[str, str]:
    """Read which errors a docstring names, and when they are raised."""
    pairs = (entry.partition("\n") for entry in _entries(value, "Raises"))
    return {name: one_line(text) for name, _, text in pairs if text}


def _entries(value: Any, section: str) -> list[str]:
    found = re.search(rf"^{section}\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", doc(value), re.MULTILINE | re.DOTALL)
    return re.split(r"\n(?=\S)", found.group(1).rstrip() if found else "")


def signature(value: Any) -> str:
    """Write the names of the arguments: types stand in the source."""
    if inspect.isclass(value):
        return ""
    names = [name for name in inspect.signature(value).parameters if name != "self"]
    return f"({', '.join(names)})"


def table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Write a table."""
    lines = [headings, ("---",) * len(headings), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def prose(value: Any) -> str:
    """Read a docstring up to its first section, with its paragraphs."""
    text = re.split(r"^\w+\n-+\n", doc(value), maxsplit=1, flags=re.MULTILINE)[0]
    return "\n\n".join(one_line(paragraph) for paragraph in text.strip().split("\n\n"))


def summary(value: Any) -> str:
    """Read the first paragraph of a docstring."""
    return one_line(doc(value).partition("\n\n")[0])


def doc(value: Any) -> str:
    """Read a docstring without its indentation."""
    return inspect.cleandoc(value.__doc__ or "")


def one_line(text: str) -> str:
    """Join the lines of a paragraph, for a cell of a table."""
    return " ".join(text.split()).replace("``", "`").replace("|", r"\|")


def code(text: str) -> str:
    """Write a name as code, for a cell of a table."""
    return "`" + text.replace("|", r"\|") + "`"
