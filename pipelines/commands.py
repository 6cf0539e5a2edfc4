"""The commands: each calls the stages in order and says how it ended."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
from omegaconf import DictConfig
from rich import box
from rich.console import Console
from rich.table import Table

from pipelines import collect, config, launch, live, plan, provenance, report
from pipelines import compare as comparing
from pipelines import publish as publishing
from pipelines.config import RunCommand, SweepCommand
from pipelines.measure import environment
from pipelines.pack import PackRun
from pipelines.progress import Found, read_progress
from pipelines.records import Manifest, Outcome, SweepFolder, TrialRecord, read_iterations
from workloads import registry
from workloads.api import Choices, Device, Level
from workloads.errors import ConfigError

DONE, SOME_FAILED, INTERRUPTED = 0, 1, 130


def sweep(cfg: DictConfig) -> int:
    """Plan, show the plan, measure what is missing, compare, publish."""
    command: SweepCommand = config.typed(cfg, SweepCommand)
    console = _console()
    device = environment.device_facts()
    manifest = plan.make_plan(command, device)
    folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
    if command.dry_run:
        live.show_plan(console, manifest, {pack.id: len(pack.orders) for pack in manifest.packs}, str(folder.path))
        live.show_arms(console, manifest)
        return DONE
    with launch.locked(folder):
        launch.prepare(folder, manifest, provenance.sweep_yaml(cfg))
        interrupted, broken = _measure(console, folder, manifest, command, device)
    if interrupted:
        console.print(f"\nstopped; finished rounds are kept in {folder.path}. The same command continues where it stopped.")
        return INTERRUPTED
    return _conclude(console, folder, manifest, broken)


def run(cfg: DictConfig) -> int:
    """One timing trial of one arm in a process of its own, with its phases printed."""
    command: RunCommand = config.typed(cfg, RunCommand)
    console = _console()
    device = environment.device_facts()
    single = SweepCommand(workload=command.workload, toggles=command.toggles, measure=command.measure, runs=command.runs)
    manifest = plan.single_arm(single, device)
    folder = SweepFolder(Path(command.runs) / manifest.sweep.name)
    with launch.locked(folder):
        launch.prepare(folder, manifest, provenance.sweep_yaml(cfg))
        with console.status(live.Stage(folder, manifest.arms[0])) if console.is_terminal else nullcontext():
            found = PackRun(folder, manifest, manifest.packs[0]).single()
    return _show_trial(console, manifest, found)


def status(path: str) -> int:
    """Rounds finished in each pack, and trials by outcome."""
    folder, manifest = _opened(path)
    progress = read_progress(folder, manifest)
    table = Table(title=f"{manifest.sweep.name}: {manifest.sweep.workload}", title_justify="left")
    for heading in ("pack", "arms", "rounds finished", "trials", "not ok"):
        table.add_column(heading)
    unfinished = 0
    for pack in manifest.packs:
        finished = [n for n in range(len(pack.orders)) if progress.finished_attempt(pack.id, n, pack.arms) is not None]
        unfinished += len(pack.orders) - len(finished)
        records = [
            f.record
            for (p, _), tries in progress.timing.items()
            if p == pack.id
            for arms in tries.values()
            for f in arms.values()
        ]
        bad = sum(record.outcome is not Outcome.OK for record in records)
        table.add_row(pack.id, str(len(pack.arms)), f"{len(finished)} of {len(pack.orders)}", str(len(records)), str(bad))
    _console().print(table)
    for message in progress.damaged:
        print(f"skipped: {message}")
    return SOME_FAILED if unfinished else DONE


def compare(path: str) -> int:
    """Effects, parity and rulings of what is done."""
    folder, manifest = _opened(path)
    return _reported(_console(), folder, manifest)


def publish(path: str) -> int:
    """Copy records to W&B; repeating it changes nothing."""
    folder, _ = _opened(path)
    return _published(_console(), folder)


def list_names() -> int:
    """Workloads, and the named sweeps of each."""
    console = _console()
    for name, target in sorted(registry.names().items()):
        console.print(f"[bold]{name}[/]  ({target})")
        console.print(f"  sweeps: {', '.join(plan.named_sweeps(name))}", highlight=False)
    return DONE


def describe(name: str) -> int:
    """Toggles of a workload with levels, parity class, requirements, and what does not act here."""
    cls = registry.find(name)
    device = environment.device_facts()
    table = Table(title=f"{name}: unit {cls.unit}, {cls.shape}-shaped", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("toggle", "level", "parity"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what it does, what it needs, why it cannot act here")
    for toggle in cls.toggles:
        for number, level in enumerate(toggle.levels):
            shown = f"{level.value} (baseline)" if number == 0 else str(level.value)
            remarks = [toggle.doc] if number == 0 else [*_needs(level), *filter(None, [level.unsupported(device)])]
            table.add_row("" if number else toggle.name, shown, level.parity.value, "; ".join(remarks))
        if toggle.numbers:
            table.add_row("", "a number", toggle.numbers.like.parity.value, str(toggle.numbers))
    console = _console()
    console.print(table)
    for claim in cls.claims:
        console.print(f"claim ({claim.source}, {claim.section}): {claim.text}", highlight=False)
    return DONE


def _needs(level: Level) -> list[str]:
    """Requirements and conflicts of a level as phrases."""

    def choices(levels: Choices) -> list[str]:
        return [f"{other}={'|'.join(map(str, values))}" for other, values in levels.items()]

    phrases = [f"needs {choice}" for choice in choices(level.requires)]
    phrases += [f"needs {' or '.join(choices(level.requires_any))}"] if level.requires_any else []
    return phrases + [f"not with {choice}" for choice in choices(level.conflicts)]


def _console() -> Console:
    """The terminal, or 100 columns where output goes to a file or a pipe."""
    console = Console()
    return console if console.is_terminal else Console(width=100)


def _measure(
    console: Console, folder: SweepFolder, manifest: Manifest, command: SweepCommand, device: Device
) -> tuple[bool, dict[str, str]]:
    """Run unfinished packs; whether the user interrupted, and the packs that broke off."""
    todo = _todo(folder, manifest, device, tuple(command.retry))
    live.show_plan(console, manifest, todo, str(folder.path))
    packs = [pack for pack in manifest.packs if todo[pack.id]]
    if not packs:
        return False, {}
    with live.live(console, manifest, live.trials_ahead(manifest, todo)) as progress:
        try:
            done = launch.launch(folder, manifest, packs, command.cluster, device, tuple(command.retry), progress)
        except KeyboardInterrupt:
            return True, {}
    return False, done.broken


def _todo(folder: SweepFolder, manifest: Manifest, device: Device, retry: tuple[str, ...]) -> dict[str, int]:
    progress = read_progress(folder, manifest, environment.comparison_keys(device))
    outcomes = frozenset(map(Outcome, retry))
    return {pack.id: len(progress.unfinished_rounds(pack, outcomes)) for pack in manifest.packs}


def _conclude(console: Console, folder: SweepFolder, manifest: Manifest, broken: dict[str, str]) -> int:
    for pack, log in broken.items():
        console.print(
            f"pack {pack} broke off; the end of {folder.pack_dir(pack) / 'log.txt'}:\n{log}", style="red", highlight=False
        )
    status = _reported(console, folder, manifest)
    status = max(status, _published(console, folder))
    return SOME_FAILED if broken else status


def _reported(console: Console, folder: SweepFolder, manifest: Manifest) -> int:
    table = collect.collect(folder, manifest)
    comparison = comparing.compare(folder, manifest, table)
    report.show(console, comparison)
    report.write_html(folder, manifest, comparison)
    console.print(f"report: {folder.report_file}", highlight=False)
    return SOME_FAILED if comparison.failed else DONE


def _published(console: Console, folder: SweepFolder) -> int:
    done = publishing.publish(folder)
    if done.warning:
        console.print(f"W&B: {done.warning}", style="yellow", highlight=False)
    elif done.runs:
        rows = sum(run.rows_in_file for run in done.runs)
        console.print(
            f"W&B: {len(done.runs)} offline runs with {rows} rows; upload with `wandb sync {folder.wandb_dir}/offline-run-*`",
            highlight=False,
        )
    return DONE


def _opened(path: str) -> tuple[SweepFolder, Manifest]:
    folder = SweepFolder(path)
    if not folder.manifest_file.exists():
        raise ConfigError(f"{path} is no folder of a sweep: it has no manifest.jsonl; sweeps lie under runs/")
    return folder, folder.read_manifest()


def _show_trial(console: Console, manifest: Manifest, found: Found) -> int:
    record = found.record
    label = manifest.arms[0].label
    if record.failure:
        console.print(f"{label}: {record.outcome.value}: {record.failure.message}", style="red", highlight=False)
        console.print(f"log: {found.folder / 'log.txt'}", highlight=False)
        return SOME_FAILED
    arrays = read_iterations(found.folder)
    table = Table(title=f"{manifest.sweep.workload}: {label}", title_justify="left")
    for heading in ("part", "in iterations", "median", "95th percentile", "share of time"):
        table.add_column(heading, justify="left" if heading == "part" else "right")
    total = float(arrays["wall_ns"].sum())
    for name, values in [("iteration", arrays["wall_ns"]), *_phases(arrays)]:
        ran = values[values > 0]  # periodic parts, such as evaluation, run in few iterations
        times = [report.duration(float(np.percentile(ran, q))) for q in (50, 95)] if len(ran) else ["", ""]
        table.add_row(name, f"{len(ran)} of {len(values)}", *times, f"{values.sum() / total:.0%}")
    console.print(table)
    for line in _trial_lines(record, found.folder):
        console.print(line, highlight=False)
    return DONE


def _phases(arrays: dict[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    return [(f"  {name.removeprefix('host_')}", values) for name, values in arrays.items() if name.startswith("host_")]


def _trial_lines(record: TrialRecord, folder: Path) -> list[str]:
    lines = [
        f"{report.duration(record.ns_per_unit)} per unit: {record.iterations} iterations, {record.units:g} units",
        f"set-up {record.setup_s:.2f} s, warm-up {record.warmup_iterations} iterations in {record.warmup_s:.2f} s",
        f"compiling {record.compile_s:.1f} s, peak memory {record.peak_bytes / 2**20:.0f} MB",
    ]
    if not record.settled:
        lines.append(f"not settled: {record.alarm or 'warm-up reached measure.warmup_max'}")
    lines += [f"disturbed: {reason}" for reason in record.disturbed]
    return [*lines, f"records: {folder}"]
