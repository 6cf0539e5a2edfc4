"""Functions and classes put in place of a script's own, wherever it defines or imports them."""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import CodeType, ModuleType
from typing import Any

from perfsweep.workloads.errors import ConfigError

Change = Callable[[Any], Any]
"""Makes the new function from the one that it replaces."""

MAIN = "__main__"
_REPLACE = "__perfsweep_replace__"


def put(undo: ExitStack, owner: Any, name: str, value: Any) -> None:
    """Put a value in the place of an attribute, until `undo`."""
    undo.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


def imported(target: str) -> Change:
    """Change something into `target`, ``module:name``, which is imported when it is needed.

    Raises
    ------
    ConfigError
        It cannot be found there.
    """

    def change(original: Any) -> Any:
        module, _, name = target.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"replace: {target} cannot be found ({error})") from error
        return found

    return change


class Replacements:
    """Changes by target, ``module:name``; the script itself is ``__main__``, or its name without .py."""

    def __init__(self, changes: Mapping[str, Change], script: str) -> None:
        self._changes: dict[str, dict[str, Change]] = defaultdict(dict)
        self.missing = set(changes)
        for target, change in changes.items():
            module, _, name = target.partition(":")
            self._changes[MAIN if module == script else module][name] = change
        self._names = {target: target.replace(f"{script}:", f"{MAIN}:", 1) for target in changes}

    def install(self, undo: ExitStack) -> None:
        """Change what is imported already, and the rest as soon as its module is."""
        for name, module in [(name, sys.modules[name]) for name in self._changes if name in sys.modules]:
            if name != MAIN:
                self._in_module(name, module, undo)
        finder = _Finder(self)
        sys.meta_path.insert(0, finder)
        undo.callback(sys.meta_path.remove, finder)

    def compiled(self, text: bytes, file: str) -> CodeType:
        """Compile a script that hands over each of its definitions that is to be changed.

        Raises
        ------
        SyntaxError, ValueError
            It is no Python.
        """
        tree = ast.parse(text, file)
        wanted = {name.partition(".")[0] for name in self._changes.get(MAIN, ())}
        body: list[ast.stmt] = []
        for statement in tree.body:
            body.append(statement)
            name = getattr(statement, "name", None)
            if name in wanted:
                call = ast.parse(f"{_REPLACE}({name!r})").body[0]
                body.append(ast.fix_missing_locations(ast.copy_location(call, statement)))
        return compile(ast.Module(body, tree.type_ignores), file, "exec", dont_inherit=True)

    def in_main(self, module: ModuleType, undo: ExitStack) -> None:
        """Let the script that runs as `module` hand over its definitions."""

        def replace(name: str) -> None:
            for path, change in self._changes[MAIN].items():
                if path.partition(".")[0] == name:
                    self._one(MAIN, module, path, change, undo)

        setattr(module, _REPLACE, replace)

    def _in_module(self, name: str, module: ModuleType, undo: ExitStack | None = None) -> None:
        for path, change in self._changes.get(name, {}).items():
            self._one(name, module, path, change, undo)

    def _one(self, name: str, module: Any, path: str, change: Change, undo: ExitStack | None) -> None:
        *owners, last = path.split(".")
        try:
            for owner in owners:
                module = getattr(module, owner)
            before = getattr(module, last)
        except AttributeError as error:
            raise ConfigError(f"replace: {name} has no {path}") from error
        setattr(module, last, change(before))
        if undo is not None:
            undo.callback(setattr, module, last, before)
        self.missing -= {target for target, known in self._names.items() if known == f"{name}:{path}"}

    def knows(self, module: str) -> bool:
        """Whether something of a module is to be changed."""
        return module in self._changes


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules as others do, and has them changed once they are executed."""

    def __init__(self, replacements: Replacements) -> None:
        self._replacements = replacements

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find what another finder finds, with a loader of ours."""
        if not self._replacements.knows(fullname):
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._replacements)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads as another loader does, then changes what is to be changed."""

    def __init__(self, loader: Any, replacements: Replacements) -> None:
        self._loader, self._replacements = loader, replacements

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """As the other does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As the other does, and change the module."""
        self._loader.exec_module(module)
        self._replacements._in_module(module.__name__, module)
