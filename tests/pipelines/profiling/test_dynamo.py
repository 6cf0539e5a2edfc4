"""What torch.compile made of an arm, in words and as costs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfsweep.pipelines.profiling.dynamo import Dynamo, explained, first_line, frames, place_of
from perfsweep.pipelines.profiling.tool import Measured
from perfsweep.pipelines.store.options import ProfileConfig

TOTALS: dict[str, float | None] = {
    "compiled_graphs": 1.0,
    "graph_breaks": 0.0,
    "recompiles": 2.0,
    "compile_s": None,
    "cudagraph_skips": None,
    "recompile_limit_hit": 0.0,
}


def test_what_a_torch_cannot_tell_is_unknown_and_not_zero() -> None:
    (line,) = explained(TOTALS, [], ())
    assert line == "1 graph, 0 graph breaks, 2 recompiles, an unknown number of CUDA graphs skipped"


def broken(name: str, *places: int, reason: str = "a print") -> Any:
    stack = [SimpleNamespace(filename="model.py", lineno=line, name=name) for line in places]
    return SimpleNamespace(reason=reason, user_stack=stack)


def test_breaks_are_told_by_place_and_reason_and_recompiles_by_their_guard() -> None:
    breaks = [broken("a", 1, 9), broken("b", 2), broken("a", 1, 9), broken("a", 1, 9, reason="a sort")]
    lines = list(explained(TOTALS, breaks, ("size\nmore", "size\nmore", "type")))
    assert lines[1:] == [
        "graph break, 2 times, at model.py:9 in a: a print",
        "graph break at model.py:2 in b: a print",
        "graph break at model.py:9 in a: a sort",
        "recompiled, 2 times,: size",
        "recompiled: type",
    ]


def test_a_break_without_a_frame_of_the_users_has_no_place() -> None:
    assert place_of(broken("a")) == "an unknown place"


@pytest.mark.parametrize(
    ("reason", "line"),
    [
        ("  one \n two", "one"),
        ("one\n  Explanation: it is: so\n Hint: no", "one: it is: so"),
        ("", ""),
        ("one\n Explanation: ", "one"),
    ],
)
def test_a_reason_is_its_first_line_and_its_explanation(reason: str, line: str) -> None:
    assert first_line(reason) == line


def metric(name: str | None, seconds: float | None, line: int = 3, **own: Any) -> Any:
    return SimpleNamespace(
        co_name=name,
        co_filename="/srv/study/model.py",
        co_firstlineno=line,
        entire_frame_compile_time_s=seconds,
        **own,
    )


def test_frames_are_told_with_what_they_took_to_compile_longest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [
        metric("short", 0.5, graph_op_count=4),
        metric("long", 1.0, graph_op_count=5),
        metric("long", 2.0, graph_op_count=None),
        metric("long", 0.25, line=8),
        metric("runs", 9.0, is_runtime=True),
        metric("never", None),
        metric(None, 1.0),
    ]
    module = SimpleNamespace(get_compilation_metrics=lambda: found)
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", module)  # type: ignore[arg-type]
    told = [(cost.name, cost.where, cost.self_ns, cost.calls) for cost in frames()]
    assert told == [
        ("long", "model.py:3", 3e9, 5.0),
        ("short", "model.py:3", 0.5e9, 4.0),
        ("long", "model.py:8", 0.25e9, 0.0),
    ]


def test_a_process_without_dynamo_has_no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace())  # type: ignore[arg-type]
    assert list(frames()) == []


class Counted:
    """Stands where compilation is counted."""

    notes, recompile_reasons = ("a note",), ("size",)

    def __init__(self, graphs: float) -> None:
        self.found, self.polls = {**TOTALS, "compiled_graphs": graphs}, 0

    def poll(self) -> None:
        self.polls += 1

    def result(self) -> dict[str, float | None]:
        return self.found


def finished(folder: Path, graphs: float, monkeypatch: pytest.MonkeyPatch, breaks: list) -> Any:
    module = SimpleNamespace(graph_break_reasons=breaks, get_compilation_metrics=lambda: [metric("f", 1.0)])
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", module)  # type: ignore[arg-type]
    tool = Dynamo(ProfileConfig(tool="dynamo"), folder)
    tool._counting = Counted(graphs)  # type: ignore[assignment]
    with tool.block(0, 1) as tick:
        tick(), tick()
    assert tool._counting.polls == 2  # type: ignore[attr-defined]
    return tool.finish(Measured(1.0, {}, 1))


def test_an_arm_that_runs_eagerly_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = finished(tmp_path, 0.0, monkeypatch, [])
    (line,) = found.findings
    assert line.startswith("nothing was compiled") and found.notes == ("a note",) and found.costs == ()
    assert (tmp_path / "explanation.txt").read_text() == f"{line}\n"
    assert dict(found.facts)["recompiles"] == 2.0


def test_the_file_has_the_whole_reason_of_each_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = broken("a", 9, reason="a return")
    ends.graph_break = False
    found = finished(tmp_path, 3.0, monkeypatch, [broken("a", 9, reason="a print\n  Hint: no"), ends])
    assert len(found.findings) == 3 and found.notes == ("a note",)
    assert [cost.name for cost in found.costs] == ["f"]
    text = (tmp_path / "explanation.txt").read_text()
    assert text.endswith("recompiled: size\n\n--- model.py:9 in a\na print\n  Hint: no\n\n")
    assert "a return" not in text
