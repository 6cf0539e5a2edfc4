"""The columns of the table of arms, each declared once: for `report.html`, `report.md` and `arms.parquet`."""

from __future__ import annotations

from perfsweep.pipelines.analysis.arm_records import outcome_text
from perfsweep.pipelines.analysis.arm_results import ArmResult
from perfsweep.pipelines.analysis.columns import NAME_WIDTH, Column, Where, file_column, soft
from perfsweep.pipelines.store.records import Outcome
from perfsweep.pipelines.units import MB, duration

SHOWN_PHASES = 6


def _phases_text(arm: ArmResult) -> str:
    """The longest phases with their time per unit; those under a hundredth of the whole are left out."""
    least = (arm.ns_per_unit or 0.0) / 100
    longest = [share for share in arm.phases if share.ns_per_unit >= least][:SHOWN_PHASES]
    return ", ".join(
        f"{share.phase} {duration(share.ns_per_unit)}{' (device)' * (share.on == 'device')}"
        for share in longest
    )


def _ranks_text(arm: ArmResult) -> str:
    on = f" on {arm.nodes} nodes" if (arm.nodes or 1) > 1 else ""
    return f"{arm.ranks}{on}" if arm.ranks else ""


def _trials_ended(outcome: Outcome) -> Column[ArmResult]:
    return file_column(
        outcome.value,
        lambda arm: arm.outcomes.get(outcome.value, 0),
        int,
        f"trials of any kind that ended so: {outcome.value}",
    )


ARMS: tuple[Column[ArmResult], ...] = (
    Column(
        "name",
        "arm",
        lambda arm: arm.name,
        lambda arm: arm.name or arm.label,
        doc="what the sweep calls the arm, else its label",
        width=NAME_WIDTH,
    ),
    Column(
        "label",
        "levels",
        lambda arm: arm.label,
        lambda arm: "" if arm.name in ("", arm.label) else arm.label,
        where=Where.HTML | Where.FILE,
        doc="what sets an arm with a name of its own apart from the baseline",
        optional=True,
        width=NAME_WIDTH,
        style=soft,
    ),
    Column(
        "on_gpu",
        "on a GPU",
        lambda arm: arm.on_gpu,
        doc="of an arm measured on a CPU: `yes`, `as graphs` that are replayed, or `CPU only`",
        optional=True,
        style=soft,
    ),
    Column(
        "ns_per_unit",
        "time per {unit}",
        lambda arm: arm.ns_per_unit,
        lambda arm: duration(arm.ns_per_unit) if arm.ns_per_unit else "",
        doc="median of the rounds",
        kind=float,
    ),
    file_column(
        "paired_ns",
        lambda arm: arm.paired_ns,
        float,
        "time per unit by the rounds that it shares with the baseline: arms are ordered by it",
    ),
    Column(
        "iteration_ns",
        "median iteration",
        lambda arm: arm.iteration_ns,
        lambda arm: duration(arm.iteration_ns) if arm.iteration_ns else "",
        doc="median iteration",
        kind=float,
    ),
    Column(
        "phases",
        "phases, per {unit}",
        text=_phases_text,
        where=Where.PAGES,
        doc="where the time goes, as far as the workload marks it",
        width=NAME_WIDTH,
        style=soft,
    ),
    Column(
        "rounds",
        "rounds",
        lambda arm: arm.rounds,
        lambda arm: str(arm.rounds or ""),
        where=Where.HTML | Where.FILE,
        doc="timing trials that count",
        kind=int,
    ),
    Column(
        "peak_bytes",
        "peak memory",
        lambda arm: arm.peak_bytes,
        lambda arm: f"{arm.peak_bytes / MB:.0f} MB" if arm.peak_bytes else "",
        doc="peak memory, median of its timing trials",
        kind=int,
    ),
    Column(
        "minor_faults",
        "faults",
        lambda arm: arm.minor_faults,
        lambda arm: f"{arm.minor_faults:,.0f}" if arm.minor_faults else "",
        where=Where.PAGES | Where.FILE,
        doc="minor page faults of an iteration: memory that the allocator gave back and took again",
        kind=float,
        optional=True,
    ),
    file_column("major_faults", lambda arm: arm.major_faults, float, "major page faults of an iteration"),
    file_column("system_ns", lambda arm: arm.system_ns, float, "time of an iteration in the kernel"),
    Column(
        "run_delay",
        "run delay",
        lambda arm: arm.run_delay,
        lambda arm: f"{arm.run_delay:.1%}" if arm.run_delay else "",
        where=Where.PAGES | Where.FILE,
        doc="share of the time for which others had its cores",
        kind=float,
        optional=True,
    ),
    Column(
        "mfu",
        "MFU",
        lambda arm: arm.mfu,
        lambda arm: "" if arm.mfu is None else f"{arm.mfu:.1%}",
        doc="model FLOPs by the device's peak",
        kind=float,
        optional=True,
    ),
    Column(
        "ranks",
        "ranks",
        lambda arm: arm.ranks,
        _ranks_text,
        where=Where.PAGES | Where.FILE,
        doc="processes of a trial; its time is that of the slowest",
        kind=int,
        optional=True,
    ),
    file_column("nodes", lambda arm: arm.nodes, int, "nodes that its ranks lie on"),
    Column(
        "collectives",
        "in collectives",
        lambda arm: arm.collectives,
        lambda arm: "" if arm.collectives is None else f"{arm.collectives:.0%}",
        where=Where.PAGES | Where.FILE,
        doc="share of the time in which a rank has a collective under way, under the profiler",
        kind=float,
        optional=True,
    ),
    Column(
        "straggling",
        "stragglers",
        lambda arm: arm.straggling,
        lambda arm: "" if arm.straggling is None else f"{arm.straggling:.0%}",
        where=Where.PAGES | Where.FILE,
        doc="share of the time for which a rank waits in collectives for the last one to come",
        kind=float,
        optional=True,
    ),
    Column(
        "trials",
        "trials",
        text=lambda arm: outcome_text(arm.outcomes),
        where=Where.PAGES,
        doc="how all trials of the arm ended",
        width=NAME_WIDTH,
    ),
    *(_trials_ended(outcome) for outcome in Outcome),
    file_column("arm", lambda arm: arm.id, doc="id of the arm: its folder under `trials/`"),
)
"""Of one arm each row."""
