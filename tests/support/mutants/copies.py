"""Judges one mutant at a time in a copy of the project: the checkout is never touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mutants.positions import Mutant

COPIED = ("src", "pipelines", "workloads", "slurm", "conf", "tests", "docs")
QUICK, LONGER = "not slow and not workloads", "slow or workloads"
KILLED, SURVIVED, SLOW, UNTESTED = "killed", "survived", "killed by time", "no test"
NOTHING_RAN = 5
"""Exit status of pytest where no test was left to run."""


@dataclass(frozen=True)
class Tried:
    """What became of a mutant.

    Args:
        outcome: One of the words above.
        by: Test that noticed it, or the files that did not.
        seconds: How long it took.
    """

    outcome: str
    by: str
    seconds: float


class Copy:
    """A copy of the project, and the process that runs tests in it.

    Args:
        root: The project.
        folder: Empty; the copy, its log and the tests' temporary files go there.
        patience_s: How long one test may take.
    """

    def __init__(self, root: Path, folder: Path, patience_s: float) -> None:
        self.root, self.folder, self.patience_s = folder / "copy", folder, patience_s
        for name in filter(lambda name: (root / name).is_dir(), COPIED):
            shutil.copytree(
                root / name, self.root / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        for path in root.iterdir():
            if path.is_file() and path.name != ".git":
                shutil.copy2(path, self.root)
        self.sound: set[str] = set()
        self.broken: set[str] = set()
        self.runner = _runner(self.root)

    def close(self) -> None:
        """Ends the process."""
        assert self.runner.stdin is not None
        self.runner.stdin.close()
        self.runner.wait()

    def tried(self, mutant: Mutant, tests: Sequence[str], tier: str = QUICK) -> Tried:
        """Runs the tests with the mistake in place, and takes it out again."""
        began = time.monotonic()
        outcome, by = self._judged(mutant, tests, tier) if tests else (UNTESTED, "")
        return Tried(outcome, by, round(time.monotonic() - began, 1))

    def _judged(self, mutant: Mutant, tests: Sequence[str], tier: str) -> tuple[str, str]:
        """As `tried`. A test that fails without the mistake too is left out from then on."""
        while True:
            with planted(self.root / mutant.path, mutant.text):
                status, test = self.pytest(tests, tier)
            if status in (0, NOTHING_RAN):
                return SURVIVED if status == 0 else UNTESTED, " ".join(tests)
            if self.passes(test, tests, tier):
                return SLOW if status is None else KILLED, test or "what the tests import"
            if not test:
                raise SystemExit(f"pytest does not start: {self.log[-3000:]}")
            self.broken.add(test)
            print(f"left out, it fails without a mistake: {test}", file=sys.stderr)

    def passes(self, test: str, tests: Sequence[str], tier: str) -> bool:
        """Whether a test that failed passes without a mistake; where none could begin, whether any can."""
        if test in self.sound:
            return True
        status, reached = self.pytest([test] if test else tests, tier)
        passes = status == 0 if test else bool(reached) or status == 0
        self.sound |= {test} if passes and test else set()
        return passes

    def pytest(self, tests: Sequence[str], tier: str) -> tuple[int | None, str]:
        """Runs tests of a tier up to a failure: status, None past the patience; the test it stopped at."""
        words = ["-n0", "-x", "-q", "-p", "no:cacheprovider", "-m", tier]
        words += [f"--basetemp={self.folder / 'tmp'}"]
        words += [f"--deselect={test}" for test in sorted(self.broken)]
        asked = {"words": [*words, *tests], "answer": str(self._answer), "patience_s": self.patience_s}
        assert self.runner.stdin is not None and self.runner.stdout is not None
        self.runner.stdin.write(json.dumps(asked) + "\n")
        self.runner.stdin.flush()
        answer = json.loads(self.runner.stdout.readline())
        return answer["status"], answer["test"]

    @property
    def _answer(self) -> Path:
        return self.folder / "answer"

    @property
    def log(self) -> str:
        """Output of the last run."""
        return self._answer.with_suffix(".log").read_text()


@contextmanager
def planted(source: Path, text: str) -> Iterator[None]:
    """Puts another text into a source; compiled files of neither stay behind for the other.

    A mutant is often as long as the source, and of the same second as the one before it: Python would take
    what it has compiled of either for both.
    """
    right, times = source.read_text(), source.stat()
    try:
        source.write_text(text)
        forget(source)
        yield
    finally:
        source.write_text(right)
        os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns))
        forget(source)


def forget(source: Path) -> None:
    """Deletes what Python has compiled of a source."""
    for path in (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc"):
        path.unlink(missing_ok=True)


def _runner(copy: Path) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(copy / "src"), str(copy)])}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # every run compiles what the one before it has compiled
    return subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).with_name("runner.py"))],
        cwd=copy,
        env=env,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
