"""`python -m perfsweep` from its first line on."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from perfsweep import __main__ as door
from perfsweep.pipelines.exits import INTERRUPTED


class Interrupted(ModuleType):
    """A module in the middle of whose import somebody presses Ctrl-C."""

    def __getattr__(self, name: str) -> None:
        raise KeyboardInterrupt


class Compiled(ModuleType):
    """The same of one in C, whose start raises something else because of it."""

    def __getattr__(self, name: str) -> None:
        raise ImportError("initialization failed") from KeyboardInterrupt()


class Attribute:
    """Of a class in whose making somebody presses it, which Python 3.11 makes a RuntimeError of."""

    def __set_name__(self, owner: type, name: str) -> None:
        raise KeyboardInterrupt


class InTheMaking(ModuleType):
    """A module that makes such a class."""

    def __getattr__(self, name: str) -> None:
        type("Made", (), {"attribute": Attribute()})


class Broken(ModuleType):
    """A module that cannot be imported."""

    def __getattr__(self, name: str) -> None:
        raise ImportError("initialization failed") from OSError("a library is missing")


@pytest.mark.parametrize("module", [Interrupted, Compiled, InTheMaking])
def test_ctrl_c_while_the_command_line_is_imported_is_one_line(module, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "perfsweep.pipelines.cli", module("perfsweep.pipelines.cli"))
    with pytest.raises(SystemExit) as end:
        door.main()
    assert end.value.code == door.INTERRUPTED == INTERRUPTED
    assert capsys.readouterr().err == "perfsweep: interrupted\n"


def test_a_module_that_cannot_be_imported_is_not_taken_for_ctrl_c(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "perfsweep.pipelines.cli", Broken("perfsweep.pipelines.cli"))
    with pytest.raises(ImportError, match="initialization failed"):
        door.main()
