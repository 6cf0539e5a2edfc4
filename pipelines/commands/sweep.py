"""`perfsweep sweep`: every arm of a sweep against its base, from the plan to the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager

from omegaconf import DictConfig
from rich.console import Console

from perfsweep.pipelines import api
from perfsweep.pipelines.api import Planned, Sweep
from perfsweep.pipelines.config import names, validation
from perfsweep.pipelines.config.types import SweepCommand
from perfsweep.pipelines.execution import launch, pack_jobs, submitted
from perfsweep.pipelines.execution.submitted import Held
from perfsweep.pipelines.exits import ATTENTION, DONE, INTERRUPTED, SOME_FAILED
from perfsweep.pipelines.measured import Watch
from perfsweep.pipelines.plan.packs import estimated_cost
from perfsweep.pipelines.plan.tally import trials_ahead
from perfsweep.pipelines.publish import publishing
from perfsweep.pipelines.publish.published import published_line
from perfsweep.pipelines.report import progress_display, terminal_table
from perfsweep.pipelines.store import provenance
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.records import Event, readable
from perfsweep.pipelines.terminal import console_here
from perfsweep.workloads.errors import ConfigError


def sweep(cfg: DictConfig) -> int:
    """Plan, show the plan, measure what is missing, compare, publish."""
    return measured(console_here(), validation.typed(cfg, SweepCommand), provenance.sweep_yaml(cfg))


def ask(cfg: DictConfig) -> int:
    """Without a workload, show the default sweep in a dry run; else refuse, and say what it would measure.

    Raises
    ------
    ConfigError
        No workload is named.
    """
    command: SweepCommand = validation.typed(cfg, SweepCommand)
    if command.dry_run:
        return sweep(cfg)
    manifest = api.plan(command, "").sweep.manifest
    workload, own = manifest.sweep.workload, command.sweep.name
    trials = sum(len(pack.arms) * len(pack.orders) for pack in manifest.packs)
    raise ConfigError(
        f"which workload? `perfsweep sweep workload={workload}` would measure its sweep {own}:"
        f" {len(manifest.arms)} arms in {manifest.sweep.measure.rounds} rounds, {trials} timed trials; choose"
        f" from: {', '.join(names.workloads())}"
    )


def measured(console: Console, command: SweepCommand, config_text: str) -> int:
    """Plan, measure and report a sweep; `config_text` is kept as its sweep.yaml."""
    planned = api.plan(command, config_text)
    display = Display(console)
    display.notices(planned.notices)
    if command.dry_run:
        _show_dry_run(console, planned)
        return DONE
    try:
        broken = api.measure(planned, display) or api.measure_together(planned, display)
    except Held as held:
        console.print(f"nothing more will happen by itself: {held}", style="yellow")
        back = progress_display.how_to_come_back(str(planned.sweep.folder.path))
        console.print(back, soft_wrap=True)
        return ATTENTION
    except KeyboardInterrupt:
        _show_stopped(console, planned)
        return INTERRUPTED
    return conclude(console, planned.sweep, broken)


def conclude(console: Console, sweep: Sweep, broken: Mapping[str, str]) -> int:
    """Compare and publish what is there; packs that ended early are shown with the end of their logs."""
    folder = sweep.folder
    for pack, log in broken.items():
        text = f"pack {pack} broke off: {log}"
        console.print(text, style="red", markup=False, soft_wrap=True)
    try:
        status = show_comparison(console, Sweep(readable(folder), sweep.manifest))
    finally:
        done = publishing.publish(folder)  # includes the results of the comparison, which it reads from disk
    if done.notice or done.warning or done.runs:
        style = "yellow" if done.warning else None
        console.print(published_line(done, folder), style=style, soft_wrap=True)
    return SOME_FAILED if broken else status


def show_comparison(console: Console, sweep: Sweep) -> int:
    """Write the report of a sweep and print its comparison; status 1 where an arm failed."""
    report = sweep.report()  # first: the reader of a pipe may end it, as `| head` does
    terminal_table.show(console, sweep.comparison)
    console.print(f"report: {report}", soft_wrap=True)
    return status_of(sweep)


def status_of(sweep: Sweep) -> int:
    """The exit status of a comparison: 1 where an arm failed."""
    return SOME_FAILED if sweep.comparison.failed else DONE


class Display(Watch):
    """Prints the plan of a sweep, and its progress while it is measured."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def begins(self, planned: Planned, unfinished: Mapping[str, int]) -> None:
        """Print what will be measured and, where jobs are submitted, the resources that they request."""
        _show_plan(self._console, planned, planned.finished())
        if planned.place.remote and any(unfinished.values()):
            _show_resources(self._console, planned, unfinished)

    def trials(
        self, planned: Planned, unfinished: Mapping[str, int]
    ) -> AbstractContextManager[Callable[[Event], None]]:
        """Show a line of progress for as long as packs run."""
        manifest = planned.sweep.manifest
        ahead = trials_ahead(manifest, dict(unfinished))
        return progress_display.live(self._console, manifest, ahead, planned.sweep.folder)

    def notices(self, texts: Iterable[str]) -> None:
        """Print sentences that the user should not miss."""
        for text in texts:
            self.notice(text)

    def counts(self, text: str) -> None:
        """Print how many jobs run and wait, and why they wait."""
        self._console.print(text, style="dim")

    def notice(self, text: str) -> None:
        """Print a sentence that the user should not miss."""
        self._console.print(text, style="yellow", soft_wrap=True)


def _show_plan(console: Console, planned: Planned, finished: int) -> None:
    folder, manifest = planned.sweep.folder, planned.sweep.manifest
    progress_display.show_plan(console, manifest, finished, str(folder.path))


def _show_dry_run(console: Console, planned: Planned) -> None:
    folder, manifest, command = planned.sweep.folder, planned.sweep.manifest, planned.command
    every = {pack.id: len(pack.orders) for pack in manifest.packs}
    _show_plan(console, planned, finished=0)
    progress_display.show_arms(console, manifest)
    if planned.place.remote:
        _show_resources(console, planned, every)
        packs, retry = list(manifest.packs), tuple(command.retry)
        for text in launch.batch_texts(folder, manifest, packs, command.cluster, planned.device, retry):
            console.out(text)


def _show_resources(console: Console, planned: Planned, unfinished: Mapping[str, int]) -> None:
    """Print the resources that each kind of pack requests, and the cost of all packs."""
    manifest, cluster = planned.sweep.manifest, planned.command.cluster
    shapes = pack_jobs.shapes(manifest, cluster, planned.device)
    for shape, count in Counter(shapes[name] for name, rounds in unfinished.items() if rounds).items():
        packs = f"{count} pack{'s' if count > 1 else ''}"
        console.print(f"{packs} with {cluster.resources(shape)}")
    progress = read_progress(planned.sweep.folder, manifest)
    console.print(f"{estimated_cost(manifest, unfinished, shapes, cluster, progress)}\n")


def _show_stopped(console: Console, planned: Planned) -> None:
    """Say which jobs still run, or how to continue."""
    folder = planned.sweep.folder

    def cancel() -> int:
        return launch.resume(folder, planned.sweep.manifest, planned.command.cluster).cancel()

    if planned.place.remote and folder.submissions_file.exists():
        left = submitted.unsubmitted(folder, planned.sweep.manifest)
        progress_display.detach(console, str(folder.path), cancel, len(left))
        return
    console.print(
        f"\nstopped; finished rounds are kept in {folder.path}. The same command continues where it stopped.",
        soft_wrap=True,
    )
