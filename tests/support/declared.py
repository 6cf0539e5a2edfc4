"""What every declaration of a study's toggles must have, and what each says, in a line."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

from perfsweep.workloads.api import Device, Level, Parity, Toggle


def faults(toggles: Sequence[Toggle], package: ModuleType, unseen: Collection[str] = ()) -> list[str]:
    """Levels without a witness or with bounds that tell nothing; what modules import though none needs it."""
    levels = {f"{toggle.name}={level.value}": level for toggle in toggles for level in toggle.levels[1:]}
    found = [
        f"{name} has no witness" for name, one in levels.items() if not one.witness and name not in unseen
    ]
    found += [name for name, one in levels.items() for size in one.bounds.values() if not 0 < size <= 0.1]
    for path in sorted(Path(str(package.__file__)).parent.glob("*.py")):
        starts = ("if ", "import torch", "from torch", "import numpy", "from numpy")
        lines = {line for line in path.read_text().splitlines() if line.startswith(starts)}
        found += [f"{path.name}: {line}" for line in lines - {"if TYPE_CHECKING:"}]
    return found


# A GPU of before tensor cores and a newer one, the host, and the host without a compiler.
DEVICES = {
    "old": Device("cuda", 1, "V100", 2**34, (7, 0), 2, True),
    "gpu": Device("cuda", 1, "H100", 80 * 2**30, (9, 0), 2, True),
    "cpu": Device(compiler=True),
    "bare": Device(),
}


def lines(table: str) -> list[str]:
    """The lines of a table in which one that is indented goes on with the line before it."""
    return [" ".join(one.split()) for one in table.replace("\n ", " ").splitlines() if one]


def described(toggles: Iterable[Toggle]) -> Iterator[str]:
    """What each toggle declares, in a line: its baseline and section, then levels, alike ones together."""
    for one in toggles:
        owns = [word for word in ("owns_collector", "owns_allocator", "ideal_loader") if getattr(one, word)]
        numbers = f"{one.numbers} {_of_level(one.numbers.like)}" if one.numbers else ""
        first = f"{one.name} {one.levels[0].value} {_of_level(one.levels[0])}".strip()
        alike: dict[str, list[str]] = {}
        for level in one.levels[1:]:
            alike.setdefault(_of_level(level), []).append(str(level.value))
        rest = ", ".join(f"{'/'.join(values)} ({what})" for what, values in alike.items())
        yield f"{', '.join(filter(None, [first, one.source, *owns, numbers]))}: {rest}"


def _of_level(level: Level) -> str:
    acts = [name for name, device in DEVICES.items() if not level.unsupported(device)]
    parts = [
        level.witness,
        level.parity.value if level.parity is not Parity.EXACT else "",
        *(f"{name}<{bound:g}" for name, bound in level.bounds.items()),
        *(f"{name}={'|'.join(map(str, values))}" for name, values in level.requires.items()),
        *(f"{name}!{'|'.join(map(str, values))}" for name, values in level.conflicts.items()),
        f"on {'+'.join(acts)}" if len(acts) < len(DEVICES) else "",
        "autotunes" if level.autotunes else "",
        f"commits {level.commit_every}" if level.commit_every else "",
        *(word for word in ("refused", "loosened") if getattr(level, word) is not getattr(Level, word)),
        "told" if level.in_code else "",
    ]
    return " ".join(filter(None, parts))
