"""Texts that tests compare whole with a file next to them."""

from __future__ import annotations

from pathlib import Path


def found_in(file: Path, text: str, folder: Path) -> bool:
    """Whether a file holds a text; else it is shown how to put it there."""
    new = folder / file.name
    new.write_text(text)
    assert text == (file.read_text() if file.exists() else ""), f"if that is meant: cp {new} {file}"
    return True
