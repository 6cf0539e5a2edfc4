"""What stands in place of a script's own functions: in modules, and in the script itself."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import pytest

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.script.replaced import MAIN, Replacements, imported


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Write modules of these texts, that can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names: list[str] = []

    def write(**texts: str) -> None:
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text)
            names.append(name)
        importlib.invalidate_caches()

    yield write
    for name in names:
        sys.modules.pop(name, None)


def twice(function: Callable[[], int]) -> Callable[[], int]:
    return lambda: 2 * function()


def test_a_function_is_changed_in_its_module_whether_that_is_imported_already_or_later(modules) -> None:
    text = "def f(): return 1\nclass C:\n    def g(self=None): return 3\n"
    modules(rp_early=text, rp_late=text, rp_other=text)
    early = importlib.import_module("rp_early")
    plain = early.f
    changes = Replacements({"rp_early:f": twice, "rp_late:C.g": twice, "rp_never:f": twice}, "train")
    with ExitStack() as undo:
        changes.install(undo)
        assert early.f() == 2 and changes.missing == {"rp_late:C.g", "rp_never:f"}
        late = importlib.import_module("rp_late")
        assert (late.f(), late.C.g()) == (1, 6)
        assert importlib.import_module("rp_other").f() == 1
        assert late.__spec__ is not None and late.__spec__.origin == late.__file__
        assert changes.missing == {"rp_never:f"}
        finders = len(sys.meta_path)
    assert early.f is plain and len(sys.meta_path) == finders - 1


SCRIPT = b"""
def f(): return 1
def g(): return f()
class C:
    def h(self=None): return 3
seen = f(), g(), C.h()
"""


@pytest.mark.parametrize("name", ["train", MAIN])
def test_a_script_hands_over_its_own_definitions_as_it_makes_them(name: str) -> None:
    changes = Replacements({f"{name}:f": twice, f"{name}:C.h": twice, f"{name}:gone": twice}, "train")
    module = ModuleType(MAIN)
    with ExitStack() as undo:
        code = changes.compiled(SCRIPT, "train.py")
        changes.in_main(module, undo)
        exec(code, vars(module))
        assert vars(module)["seen"] == (2, 2, 6)
        assert changes.missing == {f"{name}:gone"}
        assert code.co_filename == "train.py"
    assert vars(module)["f"]() == 1


@pytest.mark.parametrize("target", ["rp_early:C.h", "rp_early:nothing"])
def test_a_name_that_a_module_does_not_have_is_refused(modules, target: str) -> None:
    modules(rp_early="class C: pass")
    with ExitStack() as undo, pytest.raises(ConfigError, match=f"replace: rp_early has no {target[9:]}$"):
        Replacements({target: twice}, "train").install(undo)
        importlib.import_module("rp_early")


def test_what_is_put_in_place_is_imported_by_its_name() -> None:
    assert imported("pathlib:Path.home")(None) == Path.home
    for target in ("pathlib:Path.nowhere", "no_module_of_that_name:f"):
        with pytest.raises(ConfigError, match=rf"^replace: {target} cannot be found \("):
            imported(target)(None)
