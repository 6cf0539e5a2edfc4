"""The commands: each calls the stages in order and says how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from pipelines import units
from pipelines.analysis import collect
from pipelines.analysis import compare as comparing
from pipelines.analysis import versions as against
from pipelines.commands import selftest as testing
from pipelines.commands.publish import prepare_tracking
from pipelines.config import types as config
from pipelines.config.types import RunCommand, SweepCommand
from pipelines.execution import detach, executor_choice, launch, progress_display
from pipelines.execution.events import Held
from pipelines.execution.pack import PackRun
from pipelines.exits import ATTENTION, DONE, INTERRUPTED, SOME_FAILED
from pipelines.plan import plan, power
from pipelines.plan.cost import estimate
from pipelines.publish import publish as publishing
from pipelines.publish.published import published_line
from pipelines.report import history as telling
from pipelines.report import html, ledger, markdown, terminal
from pipelines.report import versions as changes
from pipelines.store import provenance
from pipelines.store.progress import Found, Progress, read_progress
from pipelines.store.records import Manifest, Outcome, SweepFolder, TrialRecord, opened, read_iterations
from pipelines.terminal import console_here
from pipelines.trial import environment
from workloads import registry
from workloads.api import Device


def sweep(cfg: DictConfig) -> int:
    """Plan, show the plan, measure what is missing, compare, publish."""
    return measured(console_here(), config.typed(cfg, SweepCommand), provenance.sweep_yaml(cfg))


def measured(console: Console, command: SweepCommand, config_text: str) -> int:
    """A sweep from its plan to its report; `config_text` is kept as its sweep.yaml."""
    where = executor_choice.choose(command.cluster)
    if where.line:
        console.print(where.line, style="yellow", highlight=False)
    if where.remote and (line := executor_choice.crowded(command.cluster, command.measure.threads)):
        console.print(line, style="yellow", highlight=False)
    command.cluster.executor = where.executor
    device = executor_choice.planning_device(command.cluster, where, environment.device_facts())
    prepare_tracking(console, command)
    manifest = plan.make_plan(command, device)
    power.refuse_undecidable(manifest)
    folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
    if command.dry_run:
        _show_dry_run(console, folder, manifest, command, where)
        return DONE
    with launch.locked(folder):
        launch.refuse_other_plan(folder, manifest)
        launch.prepare(folder, manifest, config_text)
        try:
            interrupted, broken = _measure(console, folder, manifest, command, where, device)
        except Held as held:
            console.print(f"nothing more will happen by itself: {held}", style="yellow", highlight=False)
            console.print(progress_display.how_to_come_back(str(folder.path)), highlight=False)
            return ATTENTION
    if interrupted and where.remote:
        detach.detach(console, str(folder.path), launch.resume(folder, manifest, command.cluster).cancel)
        return INTERRUPTED
    if interrupted:
        console.print(
            f"\nstopped; finished rounds are kept in {folder.path}. The same command continues where it"
            " stopped."
        )
        return INTERRUPTED
    return conclude(console, folder, manifest, broken)


def run(cfg: DictConfig) -> int:
    """One timing trial of one arm in a process of its own, with its phases printed."""
    command: RunCommand = config.typed(cfg, RunCommand)
    console = console_here()
    device = environment.device_facts()
    single = SweepCommand(
        workload=command.workload, toggles=command.toggles, measure=command.measure, runs=command.runs
    )
    manifest = plan.single_arm(single, device)
    folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
    with launch.locked(folder):
        launch.prepare(folder, manifest, provenance.sweep_yaml(cfg))
        with (
            console.status(progress_display.Stage(folder, manifest.arms[0]))
            if console.is_terminal
            else nullcontext()
        ):
            found = PackRun(folder, manifest, manifest.packs[0]).single()
    return _show_trial(console, manifest, found)


def compare(path: str, others: Sequence[str] = (), store: str | None = None, margin: float = 0.05) -> int:
    """Effects, parity and rulings of what is done; against `others`, status 1 where an arm became slower."""
    folder, manifest = opened(path)
    console = console_here()
    status = _reported(console, folder, manifest)
    if not others and not store:
        return status
    now = _snapshot(folder, manifest)
    if store:
        against.store(now, Path(store))
        console.print(f"baseline: {store}", highlight=False)
    then = [_taken(other) for other in others]
    return max(status, SOME_FAILED if changes.show(console, now, then, margin) else DONE)


def history(versions: Sequence[str], arms: Sequence[str], margin: float) -> int:
    """Arms over code versions: sweeps or stored baselines, oldest first."""
    telling.show(console_here(), [_taken(path) for path in versions], arms, margin)
    return DONE


def _taken(path: str) -> against.Baseline:
    """What a stored baseline, or the folder of a sweep, can be compared by."""
    return changes.stored_baseline(path) or _snapshot(*opened(path))


def _snapshot(folder: SweepFolder, manifest: Manifest) -> against.Baseline:
    progress = read_progress(folder, manifest)
    found = provenance.read_provenance(folder.config_file, _environments(progress))
    unit = registry.find(manifest.sweep.workload).unit
    return against.baseline_of(manifest, unit, collect.collect(folder, manifest, progress), found)


def selftest(budget_s: float) -> int:
    """Whether this machine resolves a delay that is known."""
    return DONE if testing.run(console_here(), budget_s) else SOME_FAILED


def claims(workload: str | None, runs: str) -> int:
    """The ledger of the reports' claims."""
    ledger.show(console_here(), workload, Path(runs))
    return DONE


def _show_dry_run(
    console: Console,
    folder: SweepFolder,
    manifest: Manifest,
    command: SweepCommand,
    where: executor_choice.Place,
) -> None:
    todo = {pack.id: len(pack.orders) for pack in manifest.packs}
    progress_display.show_plan(console, manifest, todo, str(folder.path))
    progress_display.show_arms(console, manifest)
    if where.remote:
        _show_resources(console, folder, manifest, command, todo)
        for text in launch.batch_texts(
            folder, manifest, list(manifest.packs), command.cluster, tuple(command.retry)
        ):
            console.out(text, highlight=False)


def _measure(
    console: Console,
    folder: SweepFolder,
    manifest: Manifest,
    command: SweepCommand,
    where: executor_choice.Place,
    device: Device,
) -> tuple[bool, dict[str, str]]:
    """Run unfinished packs; whether the user interrupted, and the packs that broke off."""
    todo = _todo(folder, manifest, None if where.remote else device, tuple(command.retry))
    progress_display.show_plan(console, manifest, todo, str(folder.path))
    packs = [pack for pack in manifest.packs if todo[pack.id]]
    if not packs:
        return False, {}
    if where.remote:
        _show_resources(console, folder, manifest, command, todo)

    def say(text: str) -> None:
        console.print(text, style="yellow", highlight=False)

    with progress_display.live(console, manifest, progress_display.trials_ahead(manifest, todo)) as progress:
        try:
            done = launch.launch(
                folder, manifest, packs, command.cluster, device, tuple(command.retry), progress, say
            )
        except KeyboardInterrupt:
            return True, {}
    return False, done.broken


def _show_resources(
    console: Console, folder: SweepFolder, manifest: Manifest, command: SweepCommand, todo: dict[str, int]
) -> None:
    """What each kind of pack asks for, and what all of them cost."""
    shapes = launch.shapes(manifest, command.cluster)
    for shape, count in Counter(shapes[name] for name, rounds in todo.items() if rounds).items():
        console.print(
            f"{count} pack{'s' if count > 1 else ''} with {command.cluster.resources(shape)}", highlight=False
        )
    console.print(
        f"{estimate(manifest, todo, shapes, command.cluster, read_progress(folder, manifest))}\n",
        highlight=False,
    )


def _todo(
    folder: SweepFolder, manifest: Manifest, device: Device | None, retry: tuple[str, ...]
) -> dict[str, int]:
    """Unfinished rounds by pack; without a device records of any device count, as only the nodes know
    theirs."""
    progress = read_progress(folder, manifest, environment.comparison_keys(device) if device else None)
    outcomes = frozenset(map(Outcome, retry))
    return {pack.id: len(progress.unfinished_rounds(pack, outcomes)) for pack in manifest.packs}


def conclude(console: Console, folder: SweepFolder, manifest: Manifest, broken: dict[str, str]) -> int:
    """Compare and publish what is there; packs that broke off are shown with the end of their logs."""
    for pack, log in broken.items():
        console.print(
            f"pack {pack} broke off; the end of {folder.pack_dir(pack) / 'log.txt'}:\n{log}",
            style="red",
            highlight=False,
        )
    # Nothing is measured any more: runs are published while the comparison is made.
    publication = publishing.Publication(folder)
    try:
        status = _reported(console, folder, manifest)
    finally:
        done = publication.finish()
    if done.notice or done.warning or done.runs:
        console.print(
            published_line(done, folder),
            style="yellow" if done.warning else None,
            highlight=False,
            soft_wrap=True,
        )
    return SOME_FAILED if broken else status


def _reported(console: Console, folder: SweepFolder, manifest: Manifest) -> int:
    comparison = rebuild_report(folder, manifest, lambda found: terminal.show(console, found))
    console.print(f"report: {folder.report_file}", highlight=False)
    return SOME_FAILED if comparison.failed else DONE


def rebuild_report(
    folder: SweepFolder, manifest: Manifest, show: Callable[[comparing.Comparison], None] = lambda found: None
) -> comparing.Comparison:
    """Make tables, report.html and report.md anew from what is there; `show` prints the comparison before
    they are written."""
    progress = read_progress(folder, manifest)  # once: a large sweep is thousands of small files
    table = collect.collect(folder, manifest, progress)
    comparison = comparing.compare(folder, manifest, table, progress)
    show(comparison)
    found = provenance.read_provenance(folder.config_file, _environments(progress))
    html.write_html(folder, manifest, comparison, table, found)
    markdown.write_markdown(folder, comparison, found)
    return comparison


def _environments(progress: Progress) -> list[dict[str, Any]]:
    """Facts about the machine from every trial that recorded them, the first trial's first."""
    timing = [
        found
        for attempts in progress.timing.values()
        for arms in attempts.values()
        for found in arms.values()
    ]
    records = sorted(
        (one.record for one in [*progress.other.values(), *timing]), key=lambda record: record.started
    )
    return [record.environment for record in records if record.environment]


def _show_trial(console: Console, manifest: Manifest, found: Found) -> int:
    record = found.record
    label = manifest.arms[0].label
    if record.failure:
        console.print(
            f"{label}: {record.outcome.value}: {record.failure.message}", style="red", highlight=False
        )
        console.print(f"log: {found.folder / 'log.txt'}", highlight=False)
        return SOME_FAILED
    arrays = read_iterations(found.folder)
    table = Table(title=f"{manifest.sweep.workload}: {label}", title_justify="left")
    for heading in ("part", "in iterations", "median", "95th percentile", "share of time"):
        table.add_column(heading, justify="left" if heading == "part" else "right")
    total = float(arrays["wall_ns"].sum())
    for name, values in [("iteration", arrays["wall_ns"]), *_phases(arrays)]:
        ran = values[values > 0]  # periodic parts, such as evaluation, run in few iterations
        times = [units.duration(float(np.percentile(ran, q))) for q in (50, 95)] if len(ran) else ["", ""]
        table.add_row(name, f"{len(ran)} of {len(values)}", *times, f"{values.sum() / total:.0%}")
    console.print(table)
    for line in _trial_lines(record, found.folder):
        console.print(line, highlight=False)
    return DONE


def _phases(arrays: dict[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    return [
        (f"  {name.removeprefix('host_')}", values)
        for name, values in arrays.items()
        if name.startswith("host_")
    ]


def _trial_lines(record: TrialRecord, folder: Path) -> list[str]:
    lines = [
        (
            f"{units.duration(record.ns_per_unit)} per unit: {record.iterations} iterations, {record.units:g}"
            " units"
        ),
        (
            f"set-up {record.setup_s:.2f} s, warm-up {record.warmup_iterations} iterations in"
            f" {record.warmup_s:.2f} s"
        ),
        f"compiling {record.compile_s:.1f} s, peak memory {record.peak_bytes / 2**20:.0f} MB",
    ]
    if record.mfu is not None:
        lines.append(f"model FLOPs: {record.mfu:.2%} of the device's peak")
    if not record.settled:
        lines.append(f"not settled: {record.alarm or 'warm-up reached measure.warmup_max'}")
    lines += [f"disturbed: {reason}" for reason in record.disturbed]
    return [*lines, f"records: {folder}"]
