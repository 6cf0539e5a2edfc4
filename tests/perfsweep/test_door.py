"""The door for users' code: it costs a script nothing, and leads to the Python interface."""

from __future__ import annotations

import subprocess
import sys

import pytest

import perfsweep
from perfsweep.pipelines import api


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
