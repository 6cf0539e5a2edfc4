"""`python -m perfsweep` from its first line on."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from perfsweep import __main__ as door
from pipelines.exits import INTERRUPTED


class Interrupted(ModuleType):
    """A module in the middle of whose import somebody presses Ctrl-C."""

    def __getattr__(self, name: str) -> None:
        raise KeyboardInterrupt


def test_ctrl_c_while_the_command_line_is_imported_is_one_line(monkeypatch, capsys) -> None:
    monkeypatch.setattr(door, "refuse_shadows", lambda: None)
    monkeypatch.setitem(sys.modules, "pipelines.cli", Interrupted("pipelines.cli"))
    with pytest.raises(SystemExit) as end:
        door.main()
    assert end.value.code == door.INTERRUPTED == INTERRUPTED
    assert capsys.readouterr().err == "perfsweep: interrupted\n"
