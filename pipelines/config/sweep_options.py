"""The options of `perfsweep.sweep`, for editors; fields of `measure` need no prefix.

Written by ``PYTHONPATH=tests/support python -m typed_options > pipelines/config/sweep_options.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict


class MeasurePart(TypedDict, total=False):
    """How trials measure."""

    rounds: int
    """Rounds, each of which measures every arm of a pack once: three are the fewest that decide anything;
    with precision or budget_s, these decide from six rounds on.
    """
    iterations: int | None
    """Timed iterations of a step-shaped workload in each round, rounded up to its cadence; null: as many as
    `region_s` says.
    """
    region_s: float
    """Seconds of timed iterations in each round, at least one cadence of them: as many as the baseline's
    evidence does in that time, the same for all arms; more rounds help more than longer ones.
    """
    turn_s: float
    """Seconds that an arm works while the others of its round wait, at least one iteration: a slowdown of the
    machine that lasts longer slows all of them alike.
    """
    jobs: int
    """Timed jobs of a job-shaped workload, after one discarded job."""
    discard_s: float | None
    """Seconds after which the discarded job is cut off; null: it runs whole."""
    warmup_max: int
    """Most iterations of warm-up; it ends earlier where the times have settled."""
    evidence_iterations: int
    """Iterations of an evidence trial, whose results are compared between arms."""
    counting_iterations: int
    """Iterations of a counting trial, rounded up to the workload's cadence."""
    threads: int
    """Threads of torch on CPU; with more than one, contention can change the sign of an effect."""
    timeout_s: float
    """Seconds after which a trial is given up with the outcome timeout."""
    margin: float
    """Relative difference of time below which two arms count as equal."""
    seed: int
    """Seed of every trial; the order in which the arms of a round start is drawn from it too."""
    servers: int
    """Most processes that the trials of a pack fork from, each with its own addresses and hash seed; one
    serves until the next is ready, and up to three share even the shortest rounds.
    """
    allocator: Literal["steady", "system"]
    """steady: glibc returns no memory to the OS, which it otherwise does at random; system: glibc's own
    settings.
    """
    precision: float | None
    """An arm stops, from six rounds on, when the half-width of its intervals is this (0.01 is 1 %); earlier
    where its effect is clear, and at rounds_max at the latest.
    """
    budget_s: float | None
    """Seconds of trials after which a pack starts no other round."""
    rounds_max: int
    """Most rounds where precision or budget_s decide how many there are."""
    repeats: int
    """Most rounds of a pack that are measured again because something disturbed them."""
    placebo: int
    """Copies of the baseline with unused objects in memory; an effect smaller than theirs gets no verdict."""
    look: bool
    """Measure `rounds` rounds, however few, and give no verdicts."""
    timed_parity: bool
    """Compare the numbers that timing trials ended with too, at the cost of one more trial of each arm."""
    seeds: int
    """Paired seeds for judging a stochastic level; three more where these do not decide."""
    stall: bool
    """Measure the baseline once more on its first batches, kept in memory: what an ideal loader would save.
    """
    target: float | None
    """Train every arm until target_figure reaches this value, and report the time to it; null: no such
    training.
    """
    target_figure: str
    """Number of the workload that must reach the target, such as accuracy."""
    target_better: Literal["lower", "higher"]
    """lower: the figure falls to the target, as a loss; higher: it rises to it, as an accuracy."""
    target_every: int
    """Iterations between two looks at the figure."""
    target_looks: int
    """Looks in a row whose mean must reach the target, for a noisy figure."""
    target_steps: int
    """Iterations after which a training has missed the target."""
    target_seeds: int
    """Seeds that every arm is trained to the target with, the same for all."""
    memory_gib: float | None
    """Memory limit of a trial (GiB), as if the device had no more; a trial above it ends as oom."""


class TrackingPart(TypedDict, total=False):
    """What is published to W&B, where to, and how much publishing may cost."""

    mode: Literal["offline", "online", "disabled"]
    """offline: run folders on disk; online: to a server between rounds; disabled: records only."""
    project: str
    """Project that runs are published to."""
    entity: str | None
    """Team or user; null: WANDB_ENTITY of the shell, else the account's default."""
    base_url: str | None
    """Server; null: WANDB_BASE_URL of the shell, else the one the account was logged in to."""
    share: float
    """Part of a pack's time that publishing to a server between rounds may take."""
    uploads: int
    """Runs that are uploaded at once."""
    patience_s: float
    """Seconds for one run after which a publisher is given up."""


class ArmResourcesPart(TypedDict, total=False):
    """What jobs ask for instead where they measure certain arms; null: as the profile says."""

    levels: Mapping[str, Any]
    """Levels of the arms that this is about; empty: all arms."""
    memory: str | None
    """Memory of a job."""
    gpus: int | None
    """GPUs of each pack."""
    gpu_type: str | None
    """Type of the GPUs."""
    cpus_per_task: int | None
    """Cores of each process."""
    time_min: int | None
    """Time limit of a job in minutes."""
    partition: str | None
    """Partition, or several."""
    constraint: str | None
    """Features that the nodes must have."""


class ClusterPart(TypedDict, total=False):
    """Where packs run; the fields of `perfsweep.slurm.site.SiteProfile` say how a Slurm site is asked."""

    slurm_conf: str | None
    """File slurm.conf; null: as the environment says."""
    partition: str | None
    """Partition of the jobs; of several, as in a100,h100, the one where a job can start first."""
    qos: str | None
    """Quality of service of the jobs."""
    account: str | None
    """Account that is charged."""
    constraint: str | None
    """Features that the nodes must have."""
    exclude: str | None
    """Nodes that must not be used."""
    nodelist: str | None
    """Nodes that must be used."""
    reservation: str | None
    """Reservation that the jobs run in."""
    gpus: int
    """GPUs of each pack; 0: CPU only."""
    gpu_flag: Literal["gres", "gpus-per-node", "gpus-per-task", "gpus"]
    """sbatch option that asks for GPUs; sites accept different ones."""
    gpu_type: str | None
    """Type of the GPUs, as the site names it."""
    memory: str | None
    """Memory of a job, such as 32G; null: what the site gives."""
    mem_flag: Literal["mem", "mem-per-cpu", "mem-per-gpu", "none"]
    """sbatch option that asks for memory; none where a site forbids asking."""
    cpus_per_task: int
    """Cores of each process; one of them is for the pack's parent."""
    cpu_flag: Literal["cpus-per-task", "cpus-per-gpu"]
    """sbatch option that asks for cores; some sites take cpus-per-gpu alone, where a job has GPUs."""
    time_min: int
    """Time limit of a job in minutes; a pack that needs longer continues in a requeue."""
    nodes: int
    """Nodes of each pack; the ranks of its trials are spread over them."""
    ntasks_per_node: int | None
    """Ranks of a trial on one node, filled in their order; null: spread evenly."""
    exclusive: bool
    """Take whole nodes."""
    packs_per_job: int
    """Packs that share a job, side by side, each with its own `gpus` and cores: to fill a node."""
    scratch: str | None
    """Folder on the node's own disk, in which jobs have one each for temporary files; a shell reads it:
    $TMPDIR; null: none.
    """
    array_parallelism: int
    """Most elements of an array that run at once."""
    max_array: int
    """Most elements of an array."""
    max_submit: int | None
    """Most array elements in the queue at once; null: until the site refuses."""
    setup: Sequence[str]
    """Lines of the batch script before the pack: modules, conda, venv."""
    teardown: Sequence[str]
    """Lines of the batch script after the pack; they need srun."""
    python: str | None
    """Words that start Python, maybe in a container: apptainer exec --nv image.sif python; null: the
    interpreter of this command.
    """
    srun: bool
    """Start the pack by srun; without it the shell becomes the job."""
    srun_args: Sequence[str]
    """Further options of srun, as they are."""
    signal_delay_s: int
    """Seconds before the time limit at which a pack stops after its last finished round."""
    requeue: bool
    """Let Slurm queue a pack again that was preempted or ran out of time."""
    max_retries: int
    """Most further tries of a pack that was lost or preempted."""
    kill_invalid_dep: bool
    """End jobs whose dependency can no longer be met."""
    env_allow: Sequence[str]
    """Names of further variables that jobs inherit."""
    env_set: Mapping[str, str]
    """Variables to set in jobs; their values are kept in a file for this user alone, nowhere else."""
    submit_inside: bool
    """Inside a job, such as a notebook's: submit packs from there, instead of measuring in it."""
    wckey: str | None
    """Workload characterisation key of the jobs."""
    sbatch: Sequence[str]
    """Further options of sbatch, as they are, such as --licenses=a."""
    network: bool | None
    """Whether nodes reach the W&B server, by a proxy or without, which a probe checks; null: unknown."""
    price: str | None
    """What an hour costs, with its unit: 2.5/GPU-hour or 1.10 EUR per node-hour; null: columns of cost are
    withheld.
    """
    collect: bool
    """Submit a last job that writes the comparison when all packs have ended; it asks for no GPU, and
    `cluster.sbatch` is not for it.
    """
    poll_min_s: float
    """Shortest pause between two questions to Slurm, seconds; a pack that did all is seen sooner, by its own
    record.
    """
    poll_max_s: float
    """Longest pause between two questions to Slurm, seconds."""
    fs_delay_s: float
    """Seconds after which a file that a node wrote is seen here."""
    heartbeat_s: float
    """Seconds between two signs of life of a running pack."""
    executor: Literal["auto", "slurm", "local", "inprocess"]
    """slurm; local: a queue on this machine; inprocess: this process; auto: slurm where one answers and we
    are not inside a job.
    """
    slots: int | None
    """Packs that run at once on this machine; null: one for each GPU, or one on CPU."""
    arms_per_pack: int
    """Most arms that one pack measures."""
    arm_resources: Sequence[ArmResourcesPart]
    """What packs with certain arms ask for instead; of several that fit, the last says each field."""


class DesignPart(TypedDict, total=False):
    """How arms are chosen: see docs/trust.md for each kind."""

    kind: str
    """Kind of the design: one_at_a_time, leave_one_out, chain, factorial, fractional, ladder or arms."""
    toggles: str | Mapping[str, Any]
    """Toggles that the design varies; null: all of the workload."""
    levels: Mapping[str, Sequence[Any]]
    """Levels to measure of a toggle; of the others, all."""
    best: Mapping[str, Any]
    """leave_one_out: levels of the arm that loses one toggle at a time."""
    steps: Sequence[Mapping[str, Any]]
    """chain: levels that each step adds."""
    arms: Mapping[str, Mapping[str, Any]]
    """arms: levels of each arm, by name."""
    reference: str | None
    """Baseline that the design starts from; null: the first."""
    resolution: int | None
    """fractional: 4 knows interactions in groups, 5 and 6 one by one; null: the fewest arms."""


class SweepPart(TypedDict, total=False):
    """A named sweep."""

    name: str
    """Name of the sweep."""
    designs: Sequence[DesignPart]
    """Designs whose arms the sweep measures."""
    references: Mapping[str, Mapping[str, Any]]
    """Baselines by name, with their levels: what others are measured against, the first before all; empty:
    `naive`, no level moved.
    """
    parts: Mapping[str, Sequence[str]]
    """Steps from one baseline to another by which gains are told apart, as {processor: [naive, wide]}: of an
    arm's gain on the first, the step is that part, and the rest is method.
    """
    together: bool
    """Measure all winners of the sweep at once, step by step, in a second sweep after it."""


class ReportPart(TypedDict, total=False):
    """What a report shows next to time, results and memory."""

    columns: Sequence[str]
    """Further columns of the tables, in this order; docs/tables.md says how to read each."""


class SweepOptions(MeasurePart, total=False):
    """`perfsweep sweep`."""

    workload: str | type | Mapping[str, Any]
    """Name from `perfsweep list` or package.module:Class; its own fields are workload.FIELD."""
    toggles: str | Mapping[str, Any]
    """Levels off their baseline, as toggles.NAME=LEVEL; alone, the name of a preset."""
    axes: Mapping[str, Any]
    """Levels that a toggle is varied over, as axes.NAME=[LEVEL,LEVEL]."""
    measure: str | MeasurePart
    """How trials measure."""
    tracking: str | TrackingPart
    """What is published to W&B."""
    cluster: str | ClusterPart
    """Where packs run."""
    sweep: str | SweepPart
    """Which arms are measured."""
    report: str | ReportPart
    """What the report shows."""
    keep: str | PathLike[str] | None
    """Folder into which the workload writes results and checkpoints that you keep; null: nothing."""
    keep_iterations: int
    """Iterations of a training before that; 0: a whole one, else as many as are timed."""
    runs: str | PathLike[str]
    """Folder that holds the folders of sweeps."""
    name: str | None
    """Name of the sweep's folder; null: WORKLOAD-SWEEP."""
    dry_run: bool
    """Show the plan and what would be submitted, and start nothing."""
    retry: Sequence[Literal["failed", "oom", "timeout", "unsupported"]]
    """Outcomes whose trials are measured again when the command is repeated."""
