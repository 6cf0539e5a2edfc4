"""The door for users' code: it costs a script nothing, and leads to the Python interface."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import perfsweep
from perfsweep import __main__ as door
from perfsweep.pipelines import api
from perfsweep.pipelines.exits import INTERRUPTED


def python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def test_importing_it_imports_a_little_of_the_standard_library_only() -> None:
    code = "import sys; before = set(sys.modules); import perfsweep; print(*(set(sys.modules) - before))"
    modules = python("-c", code).split()
    assert {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names) == {"perfsweep"}
    assert len(modules) <= 60, "some 20 ms of a script's start"


def test_its_names_are_those_of_the_python_interface() -> None:
    assert perfsweep.open is api.open_sweep
    others = [name for name in perfsweep.__all__ if name not in ("mark", "open", "steps")]
    assert [getattr(perfsweep, name) for name in others] == [getattr(api, name) for name in others]
    assert dir(perfsweep) == sorted(perfsweep.__all__)


def test_a_name_that_it_does_not_have_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(AttributeError, match=r"perfsweep has no swep; it has: .*sweep"):
        _ = perfsweep.swep  # type: ignore[attr-defined]


def test_the_package_can_be_run_as_the_command() -> None:
    assert "every arm of a sweep" in python("-m", "perfsweep", "--help")


class Interrupted(ModuleType):
    """A module during whose import Ctrl-C is pressed."""

    def __getattr__(self, name: str) -> None:
        raise KeyboardInterrupt


class Compiled(ModuleType):
    """The same of one in C, whose start raises something else because of it."""

    def __getattr__(self, name: str) -> None:
        raise ImportError("initialization failed") from KeyboardInterrupt()


class Attribute:
    """Of a class during whose making it is pressed, which Python 3.11 makes a RuntimeError of."""

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
