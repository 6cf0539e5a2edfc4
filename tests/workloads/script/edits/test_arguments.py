"""Arguments of a call, set in a source that keeps its formatting."""

from __future__ import annotations

import ast

import pytest

from perfsweep.workloads.script.edits.arguments import with_arguments
from perfsweep.workloads.script.edits.source import NoEdit, Source

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
    "a plain call": ("o = AdamW(ps, lr=1e-3)\n", "o = AdamW(ps, lr=1e-3, fused=True)\n"),
    "no argument": ("o = AdamW()", "o = AdamW(fused=True)"),
    "white space inside": ("o = AdamW( ps )", "o = AdamW( ps, fused=True )"),
    "an alias": ("o = optim.AdamW(m.parameters())", "o = optim.AdamW(m.parameters(), fused=True)"),
    "an argument in brackets": ("o = AdamW(ps, lr=(1e-3))", "o = AdamW(ps, lr=(1e-3), fused=True)"),
    "brackets and a comment": (
        "o = AdamW(ps, lr=(  # not )\n  1e-3) )",
        "o = AdamW(ps, lr=(  # not )\n  1e-3), fused=True )",
    ),
    "a generator": ("o = AdamW(p for p in ps)", "o = AdamW((p for p in ps), fused=True)"),
    "a generator in brackets": ("o = AdamW((p for p in ps))", "o = AdamW((p for p in ps), fused=True)"),
    "a comma at the end of the line": ("o = AdamW(ps, lr=1,)", "o = AdamW(ps, lr=1, fused=True,)"),
    "lines with a comma at the end": (
        "o = AdamW(\n    ps,\n    lr=1e-3,\n)\n",
        "o = AdamW(\n    ps,\n    lr=1e-3,\n    fused=True,\n)\n",
    ),
    "lines without a comma at the end": (
        "o = AdamW(\n    ps,\n    lr=1e-3\n)\n",
        "o = AdamW(\n    ps,\n    lr=1e-3,\n    fused=True\n)\n",
    ),
    "comments after the last argument": (
        "o = AdamW(\n    ps,\n    lr=1e-3,  # a rate, of (2)\n    # and no more\n)\n",
        "o = AdamW(\n    ps,\n    lr=1e-3,  # a rate, of (2)\n    fused=True,\n    # and no more\n)\n",
    ),
    "a comment after the last argument without a comma": (
        "o = AdamW(\n    ps  # all\n)\n",
        "o = AdamW(\n    ps,  # all\n    fused=True\n)\n",
    ),
    "a hanging indent": ("o = AdamW(ps,\n          lr=1)\n", "o = AdamW(ps,\n          lr=1, fused=True)\n"),
    "tabs": ("if x:\n\to = AdamW(\n\t\tps,\n\t)\n", "if x:\n\to = AdamW(\n\t\tps,\n\t\tfused=True,\n\t)\n"),
    "line breaks of Windows": (
        "o = AdamW(\r\n    ps,\r\n    lr=1,\r\n)\r\n",
        "o = AdamW(\r\n    ps,\r\n    lr=1,\r\n    fused=True,\r\n)\r\n",
    ),
    "letters of other alphabets before it": (
        "größe, o = 'naïve – ✓', AdamW(ps, lr=1)  # ✓",
        "größe, o = 'naïve – ✓', AdamW(ps, lr=1, fused=True)  # ✓",
    ),
    "a mapping of arguments": ("o = AdamW(ps, **kw)", "o = AdamW(ps, **kw, fused=True)"),
    "an f-string among its arguments": (
        'o = AdamW(ps, name=f"{x!r:>{n}}")',
        'o = AdamW(ps, name=f"{x!r:>{n}}", fused=True)',
    ),
    "a decorator": ("@register(AdamW(ps))\ndef f(): ...", "@register(AdamW(ps, fused=True))\ndef f(): ..."),
    "it is passed already": ("o = AdamW(ps, fused=False, lr=1)", "o = AdamW(ps, fused=True, lr=1)"),
    "a continued line": ("o = AdamW(ps, \\\n  lr=1)", "o = AdamW(ps, \\\n  lr=1, fused=True)"),
}


@pytest.mark.parametrize("name", FUSED)
def test_an_argument_is_added_and_all_else_stays_as_it_is_written(name: str) -> None:
    before, after = FUSED[name]
    assert edited(before, {"fused": "True"}) == after


def test_an_argument_by_position_is_replaced_where_it_stands() -> None:
    text = "d = DataLoader(ds, 8, True, None, None, 0)"
    assert edited(text, {"num_workers": "2"}, "DataLoader") == "d = DataLoader(ds, 8, True, None, None, 2)"


def test_several_arguments_come_one_after_the_other() -> None:
    lines = "d = DataLoader(\n    ds,\n    batch_size=8\n)\n"
    wanted = "d = DataLoader(\n    ds,\n    batch_size=8,\n    num_workers=2,\n    pin_memory=True\n)\n"
    assert edited(lines, {"num_workers": "2", "pin_memory": "True"}, "DataLoader") == wanted
    short = edited("d = DataLoader(ds)", {"num_workers": "2", "pin_memory": "True"}, "DataLoader")
    assert short == "d = DataLoader(ds, num_workers=2, pin_memory=True)"


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


def test_the_mark_at_the_begin_of_a_file_is_kept() -> None:
    data = b"\xef\xbb\xbfo = AdamW(ps)\n"
    source = Source(data)
    edits = with_arguments(source, source.call(1, (1, 13)), {"fused": "True"})
    assert source.edited(edits) == b"\xef\xbb\xbfo = AdamW(ps, fused=True)\n"


def test_of_two_calls_in_a_line_the_columns_tell_which() -> None:
    source = Source(b"a, b = AdamW(p), AdamW(q)\n")
    call = source.call(1, (1, 25))
    assert source.edited(with_arguments(source, call, {"fused": "True"})) == (
        b"a, b = AdamW(p), AdamW(q, fused=True)\n"
    )
    with pytest.raises(NoEdit, match="several calls, and which is meant is not known; write one in a line"):
        source.call(1, None)


def test_a_call_inside_an_f_string_is_refused() -> None:
    source = Source(b'print(f"{AdamW(p)}")\n')
    inner = next(
        node
        for node in ast.walk(source.tree)
        if (isinstance(node, ast.Call) and node.args == [])
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "AdamW")
    )
    with pytest.raises(NoEdit, match=r"f-string|no call where one was seen"):
        source.call(1, (inner.end_lineno or 0, inner.end_col_offset or 0))


def test_what_is_no_python_is_refused() -> None:
    with pytest.raises(NoEdit, match="is no Python"):
        Source(b"def f(:")
    with pytest.raises(NoEdit, match="is no Python"):
        Source(b"\xff\xfe")
