"""Arms to packs: which share a pack, in which order they run, on which nodes, and what that costs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import median

from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.store.progress import Progress
from perfsweep.pipelines.store.records import Arm, Effect, Manifest, Pack
from perfsweep.slurm.site import Shape, SiteProfile
from perfsweep.workloads.api import Declaration
from perfsweep.workloads.errors import ConfigError


def refuse_placement(command: SweepCommand, ranks: int) -> None:
    """Refuse nodes that nothing would run on, and ranks that nothing could."""
    nodes, each = command.cluster.nodes, command.cluster.ntasks_per_node
    if nodes > 1 and ranks == 1:
        raise ConfigError(
            f"cluster.nodes={nodes}: no arm of this sweep has more than one rank, so the other nodes would"
            " idle; leave it out"
        )
    if each is not None and ranks > nodes * each:
        raise ConfigError(
            f"cluster.ntasks_per_node={each}: there is room for {nodes * each} ranks on {nodes} nodes, and an"
            f" arm has {ranks}"
        )


def balanced_orders(arms: Sequence[str], rounds: int, seed: str) -> tuple[tuple[str, ...], ...]:
    """An order of the arms for each round.

    Rows of Williams squares in random sequence over a random labelling: over a square each arm follows each
    other arm equally often, so that the heat and caches that one arm leaves do not always affect the same
    successor (Williams 1949).
    """
    rng = random.Random(seed)
    n = len(arms)
    zigzag = [(i + 1) // 2 if i % 2 else -(i // 2) % n for i in range(n)]
    orders: list[tuple[str, ...]] = []
    while len(orders) < rounds:
        names = rng.sample(list(arms), n)
        rows = [[(step + shift) % n for step in zigzag] for shift in range(n)]
        rows += [row[::-1] for row in rows] if n % 2 else []
        rng.shuffle(rows)
        orders += [tuple(names[i] for i in row) for row in rows]
    return tuple(orders[:rounds])


def packs_of(
    effects: Sequence[Effect],
    always: Sequence[str],
    arms: Mapping[str, Arm],
    cls: type[Declaration],
    command: SweepCommand,
    *,
    by_exec: bool = False,
) -> tuple[Pack, ...]:
    """Cut effects into packs: an effect's arms share one, and the `always` arms are in each.

    Arms that must start by exec, and what is compared with them, get packs of their own: the others fork,
    and import nothing.
    """
    groups: list[tuple[str, dict[str, None]]] = []
    needed = [
        dict.fromkeys([*always, *(arm for pair in effect.pairs for arm in pair), *effect.contrast])
        for effect in effects
    ]
    starts = [
        "exec" if by_exec or any(cls.needs_exec(arms[arm].levels) for arm in own) else "fork"
        for own in needed
    ]
    for start, own in sorted(zip(starts, needed, strict=True), key=lambda pair: pair[0] == "exec"):
        last = {*groups[-1][1], *own} if groups and groups[-1][0] == start else None
        if last is None or len(last) > command.cluster.arms_per_pack:
            groups.append((start, {}))
        groups[-1][1].update(own)
    measured = command.measure
    packs = []
    for number, (start, group) in enumerate(groups):
        name = f"p{number:03d}"
        orders = balanced_orders(list(group), measured.rounds_planned, f"{measured.seed}-{name}")
        packs.append(Pack(id=name, orders=orders, start=start))
    return tuple(packs)


def estimated_cost(
    manifest: Manifest,
    unfinished: Mapping[str, int],
    shapes: Mapping[str, Shape],
    site: SiteProfile,
    progress: Progress,
) -> str:
    """GPU-hours (pack hours without GPUs): from the trials that are there, else at most each pack's limit.

    Parameters
    ----------
    unfinished : rounds by pack; packs without are left out
    shapes : resources by pack
    """
    packs = [pack for pack in manifest.packs if unfinished.get(pack.id)]
    unit = "GPU-hours" if any(shapes[pack.id].gpus for pack in packs) else "hours"
    trials = [one for tries in progress.timing.values() for arms in tries.values() for one in arms.values()]
    trial_s = median(one.record.ended - one.record.started for one in trials) if trials else None
    limit_s, total_s = site.time_min * 60.0, 0.0
    for pack in packs:
        needed_s = limit_s if trial_s is None else trial_s * len(pack.arms) * unfinished[pack.id]
        total_s += min(limit_s, needed_s) * max(1, shapes[pack.id].gpus * shapes[pack.id].nodes)
    hours = f"{total_s / 3600:.1f} {unit}"
    return f"at most {hours}" if trial_s is None else f"about {hours}, from the trials that are there"
