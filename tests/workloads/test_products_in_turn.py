"""When products are ours: between the beginning and the end of a block, and never after the endings."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from perfsweep.workloads import products as module
from perfsweep.workloads.products import products


@dataclass
class Library:
    """Stands in for the built kernels, which take a minute to build: they make what is asked for between."""

    entered: int = 0
    begun: bool = False
    made: int = 5

    def products_enter(self) -> None:
        self.entered += 1

    def products_leave(self) -> None:
        self.entered -= 1

    def products_begin(self) -> None:
        self.begun = True

    def products_end(self) -> None:
        self.begun = False

    def products_made(self) -> int:
        return self.made

    def multiply(self) -> None:
        self.made += self.begun and self.entered > 0


def test_products_are_made_and_counted_inside_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    library, counts = Library(), Counter[str]()
    monkeypatch.setattr(module, "kernels", lambda: library)
    with ExitStack() as endings:
        inside: Any = products("native", endings, counts)
        library.multiply()
        for _ in range(2):
            with inside:
                library.multiply()
            library.multiply()
        assert (library.made, counts["native_products"]) == (7, 2)
        assert library.entered
    assert not library.entered, "PyTorch has not got its operators back"
    with products("library", endings, counts):
        assert not library.entered
