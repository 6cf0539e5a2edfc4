"""What is seen of a script by running it for a moment, as plain data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import nn

from perfsweep.workloads.script.changes.scene import Scene
from perfsweep.workloads.script.edits.site import Site
from perfsweep.workloads.script.sources import Sources
from perfsweep.workloads.script.toggles import obstacles


@dataclass(frozen=True)
class Sight:
    """What a script showed.

    Attributes
    ----------
    ends : what ends an iteration, in words
    updates : classes of the optimisers that made an update, each with their number
    models : classes of the outermost modules with parameters, ``2 Net`` where two are, with their number
    unit : what progress is counted in
    obstacles : why levels cannot act, by ``toggle`` or ``toggle=level``
    writes : what became of what it wrote below its folder, or wanted to write
    unseeded : lines that may draw without a seed
    seeded_here : libraries whose generators it draws from and does not seed itself
    sites : the calls that toggles act on
    files : SHA-256 of each of the script's files, the script first
    """

    ends: str
    updates: Mapping[str, int]
    models: Mapping[str, int]
    unit: str
    obstacles: Mapping[str, str]
    writes: Sequence[str]
    unseeded: Sequence[str]
    seeded_here: Sequence[str] = ()
    sites: Sequence[Site] = ()
    files: Mapping[str, str] = field(default_factory=dict)


UNSEEDED = re.compile(
    r"\b(default_rng|RandomState|Random|SystemRandom)\(\)|\burandom\(|\buuid4\(|\btime\.time(_ns)?\(\)|"
    r"\b(seed|manual_seed)\((None|int\(time|time)|\.seed\(\)|\btoken_(bytes|hex)\("
)
"""What draws again in every process."""


def look(
    scene: Scene,
    ends: str,
    unit: str,
    writes: Iterable[str],
    sources: Sources,
    seeded_here: Sequence[str] = (),
) -> Sight:
    """Say what was seen of the script so far."""
    watched = scene.watched
    made = Counter(type(one).__name__ for one in watched.optimizers)
    models = parameters_of(watched.modules)
    unseeded = sources.lines(UNSEEDED)
    files = {str(sources.script): "", **sources.digests}
    blocked, seen = obstacles(scene), scene.sites.found
    return Sight(ends, dict(made), models, unit, blocked, list(writes), unseeded, seeded_here, seen, files)


def parameters_of(modules: Iterable[nn.Module]) -> dict[str, int]:
    """Parameters of the modules of each class; a GAN's generator and critic may both be a ``Sequential``."""
    classes: dict[str, list[int]] = {}
    for one in modules:
        classes.setdefault(type(one).__name__, []).append(sum(p.numel() for p in one.parameters()))
    return {
        name if len(sizes) == 1 else f"{len(sizes)} {name}": sum(sizes) for name, sizes in classes.items()
    }
