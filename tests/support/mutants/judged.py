"""Judges a mutant by the nearest tests, in a copy of the project: the checkout is never touched."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path

from mutants.planted import Mutant

PACKAGES = ("src", "pipelines", "workloads", "slurm")
COPIED = (*PACKAGES, "conf", "tests", "docs")
KILLED, SURVIVED, UNTESTED = "killed", "survived", "no test"
QUICK = "not slow and not workloads"
TIERS = {"quick": (QUICK, 3, 5), "wide": (QUICK, 60, 60), "longer": ("slow or workloads", 3, 5)}
"""Which tests are asked one after the other: mark, fewest and most files; 60 take half a minute."""
DEAR = (
    *("torch", "pytest", "xdist.plugin", "hypothesis.strategies", "scipy.stats", "sklearn.datasets"),
    *("polars", "hydra", "wandb", "plotly.graph_objects", "rich.console", "jinja2", "pydantic"),
)
"""What is imported once, for every run of the tests."""


class Copy:
    """A copy of the project, in whose forked processes tests run; `patience_s` is what one test may take."""

    def __init__(self, root: Path, folder: Path, patience_s: float) -> None:
        self.root, self.answer, self.patience_s = folder / "copy", folder / "answer", patience_s
        for path in root.iterdir():
            if path.is_dir() and path.name in COPIED:
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(path, self.root / path.name, symlinks=True, ignore=ignored)
        for path in root.iterdir():
            if path.is_file():
                shutil.copy2(path, self.root)
        self.sound, self.broken = set[str](), set[str]()
        for name in DEAR:
            with suppress(ImportError), warnings.catch_warnings(action="ignore"):
                import_module(name)

    def tried(self, mutant: Mutant, tests: Sequence[str], mark: str = QUICK) -> tuple[str, str]:
        """Run tests with the mistake in place: one of the words above, and the test that killed it.

        A test that fails without the mistake too is left out from then on.
        """
        while tests:
            with planted(self.root / mutant.path, mutant.text):
                status, test = self.pytest(tests, mark)
            if status in (0, 5):  # 5: no test was left to run
                return (UNTESTED if status else SURVIVED), ""
            if test in self.sound or self._passes(test, tests, mark):
                return KILLED, test or "what the tests import"
            if not test:
                raise SystemExit(
                    f"pytest does not start: {self.answer.with_suffix('.log').read_text()[-3000:]}"
                )
            self.broken.add(test)
            print(f"left out, it fails without a mistake: {test}", file=sys.stderr)
        return UNTESTED, ""

    def _passes(self, test: str, tests: Sequence[str], mark: str) -> bool:
        """Whether a test that failed passes without a mistake; where none could begin, whether any can."""
        status, reached = self.pytest([test] if test else tests, mark)
        self.sound |= {test} if test and status == 0 else set()
        return status == 0 or bool(reached and not test)

    def pytest(self, tests: Sequence[str], mark: str) -> tuple[int, str]:
        """Run tests of a mark in a fork, up to a failure: exit status, and the test that it ended at."""
        self.answer.write_text("")
        words = ["-n0", "-x", "-q", "-p", "no:cacheprovider", "-m", mark, *tests]
        words += [f"--basetemp={self.answer.with_name('tmp')}"]
        words += [f"--deselect={test}" for test in sorted(self.broken)]
        child = os.fork()
        if child == 0:
            self._run(words)
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.time() - self.answer.stat().st_mtime > self.patience_s:  # since the last test began
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.05)
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what its tests may have left running
        return os.waitstatus_to_exitcode(ended[1]), self.answer.read_text()

    def _run(self, words: list[str]) -> None:
        """In the fork: a session of its own, whose output is a file. Does not return."""
        status = 70
        try:
            os.setsid()
            log = os.open(self.answer.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for descriptor, target in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
                os.dup2(descriptor, target)
            os.chdir(self.root)
            paths = [str(self.root / "src"), str(self.root)]
            sys.path[:0], os.environ["PYTHONPATH"] = paths, os.pathsep.join(paths)
            os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each run compiles what the one before it has
            for name in [name for name in sys.modules if name.partition(".")[0] == "mutants"]:
                del sys.modules[name]  # the copy's are tested
            import pytest

            status = int(pytest.main(words, plugins=[Watch(self.answer)]))
        finally:
            sys.stdout.flush()
            os._exit(status)


class Watch:
    """A pytest plugin that writes which test runs, and which was the first to fail."""

    def __init__(self, answer: Path) -> None:
        self.answer = answer

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.answer.write_text(nodeid)

    def pytest_exception_interact(self, node) -> None:
        self.answer.write_text(node.nodeid)


@contextmanager
def planted(source: Path, text: str) -> Iterator[None]:
    """Put another text into a source; nothing that was compiled of either stays.

    A mutant is often as long as the source, and of the same second as the one before it: Python would take
    what it has compiled of either for both.
    """
    right, times = source.read_text(), source.stat()
    try:
        _put(source, text)
        yield
    finally:
        _put(source, right)
        os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))


def _put(source: Path, text: str) -> None:
    source.write_text(text)
    for path in (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"):
        path.unlink(missing_ok=True)


def sources(root: Path) -> list[Path]:
    """Every module of the packages, without those that only hold a package together."""
    found = [path for name in PACKAGES for path in (root / name).rglob("*.py")]
    return [path for path in found if path.read_text().strip() and path.name != "__init__.py"]


@cache
def words(path: Path) -> frozenset[str]:
    """Every word of a file, those with dots too."""
    text = path.read_text()
    return frozenset(re.findall(r"\w+", text)) | frozenset(re.findall(r"\w+(?:\.\w+)+", text))


def nearest(root: Path, source: Path, tier: str) -> list[str]:
    """Test files of a tier that one would run after a change of a source.

    The file of its name in the same folder of the tests comes first, or else the one that is named after its
    package: it may drive it through others alone. Files that name the source come next, then files that name
    modules which name it, and so on; of equally distant ones those that say most of its names. A
    part that only its package names, and its package only what tests share, is reached through these.
    """
    mark, fewest, most = TIERS[tier]
    tests = {path for path in (root / "tests").rglob("test_*.py") if mark != QUICK or not _longer(path)}
    defined = set(re.findall(r"^(?:class |def |async def )?(\w+)", source.read_text(), re.MULTILINE))
    found = _rings(root, source, [*sources(root), *sorted(tests)], tests, defined, fewest)
    if len(found) < fewest:
        defined |= set(re.findall(r'"(\w+)"', source.read_text()))  # levels, which tests know by their words
        farther = _rings(root, source, [*sources(root), *_between(root), *sorted(tests)], tests, defined, 10)
        found = list(dict.fromkeys([*found, *farther]))
    own = root / "tests" / source.relative_to(root).with_name(f"test_{source.stem}.py")
    package = own.parent.with_name(f"test_{own.parent.name}.py")
    own = own if own in tests else package
    found = [*({own} & tests), *(path for path in found if path != own)]
    return [str(path.relative_to(root)) for path in found[:most]]


def _between(root: Path) -> list[Path]:
    """What holds a package together, and what tests share."""
    packages = [path.parent / "__init__.py" for path in sources(root)]
    shared = [path for path in (root / "tests" / "support").rglob("*.py") if path.name != "__init__.py"]
    return [path for path in (*sorted(set(packages)), *shared) if path.exists()]


def _rings(
    root: Path, source: Path, known: list[Path], tests: set[Path], defined: set[str], fewest: int
) -> list[Path]:
    """Tests that name a source, then those that name what names it, until there are enough."""
    seen, ring, found = {source}, {source}, list[Path]()
    while ring and len(found) < fewest:
        ring = {path for path in known for one in ring if _names(path, one, root)} - seen
        seen |= ring
        rank = {
            path: (path.stem != f"test_{source.stem}", -len(defined & words(path)), path) for path in ring
        }
        found += sorted(ring & tests, key=lambda path, rank=rank: rank[path])
    return found


def _names(path: Path, module: Path, root: Path) -> bool:
    """Whether a file names a module, as one word or as a package and what is imported of it."""
    parts = module.relative_to(root).with_suffix("").parts
    if parts[:2] == ("tests", "support"):
        return ".".join(parts[2:]) in words(path) and bool(
            re.search(rf"^from {'.'.join(parts[2:])} import ", path.read_text(), re.MULTILINE)
        )
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    *package, stem = parts[1:] if parts[0] == "src" else ("perfsweep", *parts)
    return ".".join((*package, stem)) in words(path) or {".".join(package), stem} <= words(path)


@cache
def _longer(path: Path) -> bool:
    marks = r"^pytestmark = (?:\[[^\]]*|.*)\b(slow|workloads|gpu)\b"
    return bool(re.search(marks, path.read_text(), re.MULTILINE))
