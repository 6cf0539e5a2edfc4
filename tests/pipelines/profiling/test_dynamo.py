"""What torch.compile made of an arm, in words and as costs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.profiling.dynamo import explained, first_line

TOTALS: dict[str, float | None] = {
    "compiled_graphs": 1.0,
    "graph_breaks": 0.0,
    "recompiles": 2.0,
    "compile_s": None,
    "cudagraph_skips": None,
    "recompile_limit_hit": 0.0,
}


def broken(name: str, *places: int, reason: str = "a print") -> Any:
    stack = [SimpleNamespace(filename="model.py", lineno=line, name=name) for line in places]
    return SimpleNamespace(reason=reason, user_stack=stack)


def test_breaks_are_told_by_place_and_reason_and_recompiles_by_their_guard() -> None:
    breaks = [broken("a", 1, 9), broken("b", 2), broken("a", 1, 9), broken("a", 1, 9, reason="a sort")]
    lines = list(explained(TOTALS, breaks, ("size\nmore", "size\nmore", "type")))
    assert lines == [
        "1 graph, 0 graph breaks, 2 recompiles, an unknown number of CUDA graphs skipped",
        "graph break, 2 times, at model.py:9 in a: a print",
        "graph break at model.py:2 in b: a print",
        "graph break at model.py:9 in a: a sort",
        "recompiled, 2 times,: size",
        "recompiled: type",
    ]
    whole = {**TOTALS, "compile_s": 2.04, "cudagraph_skips": 1.0, "recompile_limit_hit": 1.0}
    assert list(explained(whole, [], ())) == [
        "1 graph in 2.0 s, 0 graph breaks, 2 recompiles, 1 CUDA graph skipped",
        "the recompile limit was hit: from then on that frame runs eagerly",
    ]


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("  one \n two", "one"),
        ("one\n  Explanation: it is: so\n Hint: no", "one: it is: so"),
        ("one\n Explanation: ", "one"),
    ],
)
def test_a_reason_is_its_first_line_and_its_explanation(reason: str, line: str) -> None:
    assert first_line(reason) == line
