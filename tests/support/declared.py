"""What every declaration of a study's toggles must have, whatever they are about."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType

from perfsweep.workloads.api import Toggle


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
