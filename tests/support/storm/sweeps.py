"""Sweeps that storms rage on: what is asked for on the command line, here and on the development Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from storm import traces
from storm.invariants import Violation

if TYPE_CHECKING:
    from storm.world import World

USERS = "toys"
"""The folder that the workload's own module lies in."""

SMALL = (
    *("workload=toys.spinner:Spinner", "workload.products=200", "measure.rounds=8", "measure.iterations=60"),
    *("measure.warmup_max=10", "measure.evidence_iterations=2", "measure.counting_iterations=2"),
    *("measure.timed_parity=false", "measure.timeout_s=90", "measure.repeats=0", "cluster.arms_per_pack=3"),
    "retry=[failed,oom,timeout]",  # a trial that was killed is wanted all the same
)
"""Trials of some tenths of a second, in two packs."""

TRACKED = (
    *("tracking=online", "tracking.entity=team", "tracking.share=1.0"),
    *("tracking.patience_s=10", "tracking.uploads=2"),
)

QUICK = (
    *("cluster.poll_min_s=0.2", "cluster.poll_max_s=0.5", "cluster.fs_delay_s=1", "cluster.heartbeat_s=1"),
    *("cluster.signal_delay_s=5", "cluster.cpus_per_task=1", "cluster.memory=3G", "cluster.sbatch=[]"),
    *("cluster.time_min=10", "cluster.max_retries=5"),
)
"""A development cluster asked as often as tests need it."""


def arguments(world: World, overrides: tuple[str, ...] = (), name: str = "") -> tuple[str, ...]:
    """The command of a sweep in this world."""
    place: tuple[str, ...] = ("cluster=local", "cluster.slots=2")
    if world.cluster:
        conf = f"cluster.slurm_conf={world.cluster.settings.conf}"
        account = ("cluster.account=bench",) if world.cluster.settings.accounting else ()
        place = ("cluster=dev", conf, *QUICK, *account, "cluster.env_allow=[PERFSWEEP_STORM]")
    named = (f"name={name or world.sweep}", f"runs={world.runs}")
    return ("sweep", *place, *SMALL, *TRACKED, *named, *overrides)


def words(folder: Path) -> Iterator[Violation]:
    """What processes of a sweep printed, where it is not for people."""
    for file in sorted([*folder.glob("packs/*/log.txt"), *folder.glob("submissions/*.out")]):
        yield from traces.words(file.read_text(errors="replace"), str(file))
    for file in sorted(folder.glob("trials/*/*/log.txt")):
        yield from traces.trial_words(file.read_text(errors="replace"), USERS, str(file))
