"""Options of all commands, each declared once; the values that differ from the defaults live in `conf/`.

Imports neither Hydra nor torch, so that help and completion answer at once. Options that are written into the
files of a sweep are declared in `perfsweep.pipelines.store.options`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from perfsweep.fields import option
from perfsweep.pipelines.store.options import MeasureConfig, ProfileConfig, ReportConfig, TrackingConfig
from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.jobs import EXECUTORS
from perfsweep.slurm.site import SiteProfile
from perfsweep.workloads.api import Parity

REQUIRED: Any = "???"
"""What OmegaConf calls MISSING: the value must be given."""


@dataclass
class ArmResources:
    """What jobs ask for instead where they measure certain arms; null: as the profile says."""

    levels: dict[str, Any] = option(dict, "Levels of the arms that this is about; empty: all arms.")
    memory: str | None = option(None, "Memory of a job.")
    gpus: int | None = option(None, "GPUs of each pack.", least=0)
    gpu_type: str | None = option(None, "Type of the GPUs.")
    cpus_per_task: int | None = option(None, "Cores of each process.", least=1)
    time_min: int | None = option(None, "Time limit of a job in minutes.", least=1)
    partition: str | None = option(None, "Partition, or several.")
    constraint: str | None = option(None, "Features that the nodes must have.")

    @property
    def asked(self) -> dict[str, Any]:
        """Fields of the profile that are different for these arms."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "levels"}
        return {name: value for name, value in values.items() if value is not None}


@dataclass
class ClusterConfig(SiteProfile):
    """Where packs run; the fields of `perfsweep.slurm.site.SiteProfile` say how a Slurm site is asked."""

    executor: str = option(
        "local",
        "slurm; local: a queue on this machine; inprocess: this process; auto: slurm where one answers and we"
        " are not inside a job.",
        choices=("auto", *EXECUTORS),
    )
    slots: int | None = option(
        None, "Packs that run at once on this machine; null: one for each GPU, or one on CPU.", least=1
    )
    arms_per_pack: int = option(24, "Most arms that one pack measures.", least=2)
    arm_resources: list[ArmResources] = option(
        list, "What packs with certain arms ask for instead; of several that fit, the last says each field."
    )

    def check(self) -> None:
        """Refuse what could never be submitted, for certain arms alone too.

        Raises
        ------
        ClusterError
            A field is out of range, or an option is given twice; the message names the field.
        """
        super().check()
        for number, rule in enumerate(self.arm_resources):
            try:
                replace(self, arm_resources=[], **rule.asked).check()
            except ClusterError as error:
                raise ClusterError(f"cluster.arm_resources[{number}]: {error}") from None


@dataclass
class DesignConfig:
    """How arms are chosen: see docs/trust.md for each kind."""

    kind: str = option(
        REQUIRED,
        "Kind of the design: one_at_a_time, leave_one_out, chain, factorial, fractional, ladder or arms.",
    )
    toggles: list[str] | None = option(None, "Toggles that the design varies; null: all of the workload.")
    levels: dict[str, list[Any]] = option(dict, "Levels to measure of a toggle; of the others, all.")
    best: dict[str, Any] = option(dict, "leave_one_out: levels of the arm that loses one toggle at a time.")
    steps: list[dict[str, Any]] = option(list, "chain: levels that each step adds.")
    arms: dict[str, dict[str, Any]] = option(dict, "arms: levels of each arm, by name.")
    reference: str | None = option(None, "Baseline that the design starts from; null: the first.")
    resolution: int | None = option(
        None, "fractional: 4 knows interactions in groups, 5 and 6 one by one; null: the fewest arms."
    )


@dataclass
class SweepConfig:
    """A named sweep."""

    name: str = option(REQUIRED, "Name of the sweep.")
    designs: list[DesignConfig] = option(list, "Designs whose arms the sweep measures.")
    references: dict[str, dict[str, Any]] = option(
        dict,
        "Baselines by name, with their levels: what others are measured against, the first before all; empty:"
        " `naive`, no level moved.",
    )
    parts: dict[str, list[str]] = option(
        dict,
        "Steps from one baseline to another by which gains are told apart, as {processor: [naive, wide]}: of"
        " an arm's gain on the first, the step is that part, and the rest is method.",
    )
    together: bool = option(
        True, "Measure all winners of the sweep at once, step by step, in a second sweep after it."
    )


@dataclass
class TuneConfig:
    """What `perfsweep tune` may change, and what it must keep to."""

    toggles: list[str] = option(list, "Toggles to choose levels for, up to eight.")
    levels: dict[str, list[Any]] = option(dict, "Levels to consider of a toggle; of the others, all.")
    ladder: str | None = option(None, "Toggle of sizes that is climbed first; null: none.")
    sizes: list[int] = option(list, "Sizes of the ladder; empty: powers of two.")
    reference: dict[str, Any] = option(
        dict,
        "Levels of the baseline: the arm to start from and to be measured against; empty: no level moved.",
    )
    iterations: float | None = option(
        None,
        "Iterations for which set-up and compiling are to pay; null: time per unit alone counts.",
        above=0,
    )
    memory_gib: float | None = option(None, "Memory an arm may need (GiB); null: what there is.", above=0)
    compile_s: float | None = option(
        None, "Seconds that an arm may compile for, with nothing compiled yet; null: any.", above=0
    )
    parity: str = option("tolerance", "Loosest class of results that is allowed.", choices=tuple(Parity))
    rounds: int = option(
        3, "Rounds of each step of the search; the comparison at the end has measure.rounds.", least=2
    )


@dataclass
class FrontierConfig:
    """A ladder for `perfsweep frontier`."""

    toggle: str | None = option(None, "Toggle of sizes; null: the only one of the workload.")
    sizes: list[int] = option(list, "Sizes that may be measured; empty: powers of two.")
    memory_gib: float | None = option(
        None, "Memory that a size may need (GiB); null: what the device has.", above=0
    )
    measurements: int = option(10, "Most sizes that are measured.", least=2)
    rounds: int = option(3, "Rounds of each size.", least=2)


_WORKLOAD = "Name from `perfsweep list` or package.module:Class; its own fields are workload.FIELD."
_TOGGLES = "Levels off their baseline, as toggles.NAME=LEVEL; alone, the name of a preset."
_KEEP = "Folder into which the workload writes results and checkpoints that you keep; null: nothing."
_KEEP_ITERATIONS = "Iterations of a training before that; 0: a whole one, else as many as are timed."
_RUNS = "Folder that holds the folders of sweeps."


@dataclass
class SweepCommand:
    """`perfsweep sweep`."""

    workload: Any = option(REQUIRED, _WORKLOAD)
    toggles: dict[str, Any] = option(dict, _TOGGLES)
    axes: dict[str, Any] = option(dict, "Levels that a toggle is varied over, as axes.NAME=[LEVEL,LEVEL].")
    measure: MeasureConfig = option(MeasureConfig, "How trials measure.")
    tracking: TrackingConfig = option(TrackingConfig, "What is published to W&B.")
    cluster: ClusterConfig = option(ClusterConfig, "Where packs run.")
    sweep: SweepConfig = option(SweepConfig, "Which arms are measured.")
    report: ReportConfig = option(ReportConfig, "What the report shows.")
    keep: str | None = option(None, _KEEP)
    keep_iterations: int = option(0, _KEEP_ITERATIONS)
    runs: str = option("runs", _RUNS)
    name: str | None = option(None, "Name of the sweep's folder; null: WORKLOAD-SWEEP.")
    dry_run: bool = option(False, "Show the plan and what would be submitted, and start nothing.")
    retry: list[str] = option(
        list,
        "Outcomes whose trials are measured again when the command is repeated.",
        choices=("failed", "oom", "timeout", "unsupported"),
    )


@dataclass
class RunCommand:
    """`perfsweep run`."""

    workload: Any = option(REQUIRED, _WORKLOAD)
    toggles: dict[str, Any] = option(dict, _TOGGLES)
    measure: MeasureConfig = option(MeasureConfig, "How trials measure.")
    keep: str | None = option(None, _KEEP)
    keep_iterations: int = option(0, _KEEP_ITERATIONS)
    runs: str = option("runs", _RUNS)


@dataclass
class ProfileCommand:
    """`perfsweep profile`."""

    workload: Any = option(REQUIRED, _WORKLOAD)
    toggles: dict[str, Any] = option(dict, _TOGGLES)
    measure: MeasureConfig = option(MeasureConfig, "How trials measure.")
    tracking: TrackingConfig = option(TrackingConfig, "What is published to W&B.")
    profile: ProfileConfig = option(ProfileConfig, "What is profiled.")
    runs: str = option("runs", _RUNS)


@dataclass
class TuneCommand(SweepCommand):
    """`perfsweep tune`."""

    tune: TuneConfig = option(TuneConfig, "What may change, and what must be kept to.")


@dataclass
class FrontierCommand(SweepCommand):
    """`perfsweep frontier`."""

    frontier: FrontierConfig = option(FrontierConfig, "The ladder.")


@dataclass
class DoctorCommand:
    """`perfsweep doctor`."""

    cluster: ClusterConfig = option(ClusterConfig, "Where packs would run.")
    gpu: bool = option(
        False,
        "Check the GPU of this machine, or of a job on the cluster: seven stages, ten minutes, at most 45.",
    )
    stages: list[int] = option(list, "Numbers of the stages of such a check; empty: all.")
    probe: bool = option(False, "Submit a job of a minute that says whether a node is as the profile says.")
    runs: str = option("runs", f"{_RUNS} A check of a GPU and a probe write there.")


COMMANDS: dict[str, type[Any]] = {
    "sweep": SweepCommand,
    "run": RunCommand,
    "profile": ProfileCommand,
    "doctor": DoctorCommand,
    "tune": TuneCommand,
    "frontier": FrontierCommand,
}
"""Commands whose options Hydra composes."""

ENTRIES: dict[str, type[Any]] = {"sweep.designs": DesignConfig, "cluster.arm_resources": ArmResources}
"""Options that are lists of settings, and what each of their entries holds."""


def parts(command: str) -> list[str]:
    """List the top-level names of a command's configuration."""
    return [one.name for one in fields(COMMANDS[command])]
