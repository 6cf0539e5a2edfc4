"""Lines and blocks around statements of a source that keeps its formatting."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from perfsweep.workloads.script.edits.source import NoEdit, Source
from perfsweep.workloads.script.edits.statements import (
    after_imports,
    assigned,
    imported,
    inside,
    line_after,
    outermost_loop,
    scope_at,
)


def source_of(text: str) -> Source:
    return Source(dedent(text).lstrip("\n").encode())


def first(source: Source, kind: type[ast.AST], where: str) -> ast.stmt:
    return next(
        node
        for node in ast.walk(source.tree)
        if isinstance(node, kind) and isinstance(node, ast.stmt) and where in source.text(node)
    )


WRAPPED = {
    "a statement": (
        "for x in d:\n    y = m(x)  # go\n",
        "for x in d:\n    with A:\n        y = m(x)  # go\n",
    ),
    "tabs": ("for x in d:\n\ty = m(x)\n", "for x in d:\n\twith A:\n\t\ty = m(x)\n"),
    "several lines": (
        "for x in d:\n  y = f(\n    m(x),\n\n    # of all\n  )\n",
        "for x in d:\n  with A:\n    y = f(\n      m(x),\n\n      # of all\n    )\n",
    ),
    "line breaks of Windows": ("y = m(x)\r\nz = 1\r\n", "with A:\r\n    y = m(x)\r\nz = 1\r\n"),
    "a return": ("def f(x):\n    return m(x)\n", "def f(x):\n    with A:\n        return m(x)\n"),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_statement_becomes_the_body_of_a_with(name: str) -> None:
    before, after = WRAPPED[name]
    source = Source(before.encode())
    call = next(n for n in ast.walk(source.tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "m")
    assert source.edited(inside(source, source.statement(call), "A")).decode() == after


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("for y in m(x):\n    pass\n", "head of a block"),
        ("if m(x): pass\n", "head of a block"),
        ("a = 1; y = m(x)\n", "something before the statement"),
        ("y = m(x); b = 1\n", "another statement in the same line"),
        ("if a: y = m(x)\n", "something before the statement"),
        ('y = m("""a\nb""")\n', "a text of several lines"),
    ],
)
def test_a_statement_that_cannot_be_indented_is_refused_with_the_reason(text: str, reason: str) -> None:
    source = Source(text.encode())
    call = next(n for n in ast.walk(source.tree) if isinstance(n, ast.Call))
    with pytest.raises(NoEdit, match=reason):
        inside(source, source.statement(call), "A")


HELD = {
    "the last assignment before it is used": (
        "model = Net()\nmodel = model.to(d)\nfor x in y:\n    model(x)\nmodel = None\n",
        ("model", 4),
        "model = model.to(d)",
    ),
    "one of several names": ("model, o = prepare(a)\nmodel(x)\n", ("model", 2), "model, o = prepare(a)"),
    "one branch of several": (
        "if a:\n    model = A()\nelse:\n    model = B()\nmodel(x)\n",
        ("model", 5),
        "if a:\n    model = A()\nelse:\n    model = B()",
    ),
    "the loop that uses it": (
        "for fold in folds:\n    model = Net()\n    for x in y:\n        model(x)\n",
        ("model", 4),
        "model = Net()",
    ),
    "an annotation": ("model: Module = Net()\nmodel(x)\n", ("model", 2), "model: Module = Net()"),
    "inside a with": (
        "with device:\n    model = Net()\nmodel(x)\n",
        ("model", 3),
        "with device:\n    model = Net()",
    ),
}


@pytest.mark.parametrize("name", HELD)
def test_a_model_has_its_name_for_good_after(name: str) -> None:
    text, (held, line), wanted = HELD[name]
    source = Source(text.encode())
    found = assigned(source, source.tree, held, line)
    assert found is not None
    assert source.text(found) == wanted


def test_an_attribute_is_looked_for_in_all_of_its_class() -> None:
    source = source_of(
        """
        class Trainer:
            def __init__(self, net):
                self.model = net.to("cpu")  # here

            def step(self, x):
                return self.model(x)
        """
    )
    owner = source.tree.body[0]
    found = assigned(source, owner, "self.model")
    assert found is not None
    after = source.edited([line_after(source, found, "self.model.compile()")]).decode()
    assert '        self.model = net.to("cpu")  # here\n        self.model.compile()\n' in after


def test_a_parameter_is_assigned_nowhere_and_a_name_of_another_function_is_another() -> None:
    source = source_of(
        """
        def train(model):
            def inner():
                model = 1
            model(x)
        """
    )
    assert assigned(source, scope_at(source, 1), "model", 4) is None


def test_a_module_that_is_missing_is_imported_after_the_first_imports() -> None:
    source = source_of(
        '''
        """A docstring."""
        from __future__ import annotations
        import sys

        x = 1
        '''
    )
    name, edits = imported(source, "gc")
    assert name == "gc"
    assert "import sys\nimport gc\n\nx = 1" in source.edited(edits).decode()
    assert imported(Source(b"import torch as t\n"), "torch") == ("t", [])
    assert imported(Source(b"import torch.nn\n"), "torch")[1] != []
    assert Source(b"x = 1\n").edited(imported(Source(b"x = 1\n"), "gc")[1]) == b"import gc\nx = 1\n"


def test_a_setting_comes_after_all_imports() -> None:
    source = source_of("import a\nx = 1\nfrom b import (\n    c,\n)\ny = 2\n")
    after = source.edited([after_imports(source, "go()")]).decode()
    assert after == "import a\nx = 1\nfrom b import (\n    c,\n)\ngo()\ny = 2\n"


def test_the_outermost_loop_of_a_function_is_found_from_a_line_in_it() -> None:
    source = source_of(
        """
        for a in b:
            pass
        @decorated
        def train():
            for epoch in epochs:
                for x in y:
                    step(x)
        """
    )
    loop = outermost_loop(source, scope_at(source, 3), 7)
    assert loop is not None and source.text(loop).startswith("for epoch in epochs")
    assert outermost_loop(source, source.tree, 7) is None


def test_a_file_without_a_line_break_at_its_end_stays_without() -> None:
    source = Source(b"model = Net()")
    (statement,) = source.tree.body
    assert (
        source.edited([line_after(source, statement, "model.compile()")]) == b"model = Net()\nmodel.compile()"
    )


def test_an_edit_that_would_break_the_file_is_refused() -> None:
    source = Source(b"a = 1; b = f(\n  2)\n")
    with pytest.raises(NoEdit, match="would be no Python any more"):
        source.edited([line_after(source, source.tree.body[0], "g()")])
