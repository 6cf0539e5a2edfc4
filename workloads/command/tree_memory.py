"""Memory of all processes that a run has at once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_KIB = 1024


def several_bytes(parent: int) -> int:
    """Memory in use by the descendants of a process together, shared pages once; 0 for fewer than two.

    The kernel knows the peak of a single process better than any look at it, and without its cost.
    """
    family = descendants(parent)
    return sum(map(_proportional_bytes, family)) if len(family) > 1 else 0


def descendants(parent: int) -> list[int]:
    """Process ids of everything that `parent` started, and what that started."""
    found, waiting = list[int](), [parent]
    while waiting:
        children = _children(waiting.pop())
        found += children
        waiting += children
    return found


def _children(process: int) -> list[int]:
    """Children of all threads of a process; none if it has ended."""
    with suppress(OSError):
        tasks = [*Path(f"/proc/{process}/task").iterdir()]
        return [int(child) for task in tasks for child in _text(task / "children").split()]
    return []


def _proportional_bytes(process: int) -> int:
    lines = _text(Path(f"/proc/{process}/smaps_rollup")).splitlines()
    return sum(int(line.split()[1]) * _KIB for line in lines if line.startswith("Pss:"))


def _text(file: Path) -> str:
    """What a file of the kernel holds; nothing once its process has ended."""
    try:
        return file.read_text()
    except OSError:
        return ""
