"""Arguments of a call, and blocks around statements, in a source that keeps its formatting."""

from __future__ import annotations

import ast

import pytest

from perfsweep.workloads.script.edits.source import NoEdit, Source
from perfsweep.workloads.script.edits.statements import (
    after_imports,
    imported,
    inside,
    line_after,
    with_arguments,
)

LOADER = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers")


def edited(
    data: str | bytes, values: dict[str, str], name: str = "AdamW", given: tuple[str, ...] = ()
) -> str:
    source = Source(data if isinstance(data, bytes) else data.encode())
    call = next(
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(name)
    )
    positions = LOADER if name == "DataLoader" else ()
    return source.edited(with_arguments(source, call, values, positions, given)).decode()


FUSED = {
    "a generator": ("o = AdamW(p for p in ps)", "o = AdamW((p for p in ps), fused=True)"),
    "lines with a comma at the end": (
        "o = AdamW(\n    ps,\n    lr=1e-3,\n)\n",
        "o = AdamW(\n    ps,\n    lr=1e-3,\n    fused=True,\n)\n",
    ),
    "a comment after the last argument without a comma": (
        "o = AdamW(\n    ps  # all\n)\n",
        "o = AdamW(\n    ps,  # all\n    fused=True\n)\n",
    ),
    "line breaks of Windows": (
        "o = AdamW(\r\n    ps,\r\n    lr=1,\r\n)\r\n",
        "o = AdamW(\r\n    ps,\r\n    lr=1,\r\n    fused=True,\r\n)\r\n",
    ),
    "letters of other alphabets before it": (
        "größe, o = 'naïve – ✓', AdamW(ps, lr=1)  # ✓",
        "größe, o = 'naïve – ✓', AdamW(ps, lr=1, fused=True)  # ✓",
    ),
    "none": ("o = AdamW()", "o = AdamW(fused=True)"),
    "names alone": ("o = AdamW(params=ps)", "o = AdamW(params=ps, fused=True)"),
    "brackets around the last one": ("o = AdamW((ps))", "o = AdamW((ps), fused=True)"),
    "a comma at the end of a line": ("o = AdamW(ps, lr=1,)", "o = AdamW(ps, lr=1, fused=True,)"),
    "it is passed already": ("o = AdamW(ps, fused=False, lr=1)", "o = AdamW(ps, fused=True, lr=1)"),
}


@pytest.mark.parametrize("name", FUSED)
def test_an_argument_is_added_and_all_else_stays_as_it_is_written(name: str) -> None:
    before, after = FUSED[name]
    assert edited(before, {"fused": "True"}) == after


def test_an_argument_that_a_mapping_brings_is_refused() -> None:
    with pytest.raises(NoEdit, match=r"passes fused by \* or \*\*"):
        edited("o = AdamW(ps, **kw)", {"fused": "True"}, given=("fused",))
    with pytest.raises(NoEdit, match="passes num_workers by"):
        edited("d = DataLoader(*args)", {"num_workers": "2"}, "DataLoader", given=("num_workers",))


def test_the_encoding_that_a_file_names_is_kept() -> None:
    data = "# -*- coding: latin-1 -*-\nÄ = AdamW(ps)  # ü\n".encode("latin-1")
    source = Source(data)
    (call,) = (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    after = source.edited(with_arguments(source, call, {"fused": "True"}))
    assert after == "# -*- coding: latin-1 -*-\nÄ = AdamW(ps, fused=True)  # ü\n".encode("latin-1")


def test_of_two_calls_in_a_line_the_columns_tell_which() -> None:
    source = Source(b"a, b = AdamW(p), AdamW(q)\n")
    call = source.call(1, (1, 25))
    assert source.edited(with_arguments(source, call, {"fused": "True"})) == (
        b"a, b = AdamW(p), AdamW(q, fused=True)\n"
    )
    with pytest.raises(NoEdit, match="several calls, and which is meant is not known; write one in a line"):
        source.call(1, None)


def test_a_call_inside_an_f_string_has_no_place_of_its_own() -> None:
    with pytest.raises(NoEdit, match="makes the call inside an f-string; take it out of there"):
        Source(b'x = f"{AdamW(p)}"\n').call(1, None)


def test_what_is_no_python_is_refused() -> None:
    with pytest.raises(NoEdit, match="is no Python"):
        Source(b"def f(:")
    with pytest.raises(NoEdit, match="is no Python"):
        Source(b"\xff\xfe")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("for y in m(x):\n    pass\n", "head of a block"),
        ("a = 1; y = m(x)\n", "something before the statement"),
        ("y = m(x); b = 1\n", "another statement in the same line"),
        ('y = m("""a\nb""")\n', "a text of several lines"),
    ],
)
def test_a_statement_that_cannot_be_indented_is_refused_with_the_reason(text: str, reason: str) -> None:
    source = Source(text.encode())
    call = next(n for n in ast.walk(source.tree) if isinstance(n, ast.Call))
    with pytest.raises(NoEdit, match=reason):
        inside(source, source.statement(call), "A")


def test_an_edit_that_would_break_the_file_is_refused() -> None:
    source = Source(b"a = 1; b = f(\n  2)\n")
    with pytest.raises(NoEdit, match="would be no Python any more"):
        source.edited([line_after(source, source.tree.body[0], "g()")])


@pytest.mark.parametrize(
    ("text", "at_once", "after_all"),
    [
        ("import a\nx = 1\nfrom b import c\ny = 2\n", 1, 3),
        ('"""What."""\nx = 1\n', 1, 1),
        ("x = 1\nimport a\n", 0, 2),
    ],
)
def test_a_line_is_put_after_the_first_imports_or_after_all(text: str, at_once: int, after_all: int) -> None:
    source, lines = Source(text.encode()), text.splitlines()
    name, edits = imported(source, "torch")
    for new, edit, place in (
        ("import torch", edits, at_once),
        ("f()", [after_imports(source, "f()")], after_all),
    ):
        assert source.edited(edit).decode().splitlines() == [*lines[:place], new, *lines[place:]]
    assert name == "torch"
    assert imported(Source(b"import os, torch as t\nimport torch.cuda as c\n"), "torch") == ("t", [])
    assert imported(Source(b"import torch\nimport torch.cuda as c\n"), "torch.cuda") == ("c", [])
