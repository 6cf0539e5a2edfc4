"""`perfsweep check`: which rules a workload breaks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext

from omegaconf import DictConfig
from rich.console import Console
from rich.text import Text

from perfsweep.pipelines.check.checked import Checked, checking
from perfsweep.pipelines.check.rules import Finding
from perfsweep.pipelines.config import composition
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.report.progress_display import LOG_EVERY_S
from perfsweep.pipelines.terminal import console_here
from perfsweep.workloads.errors import ConfigError


def check(workload: str, values: Sequence[str], toggles: str | None = None) -> int:
    """Run a workload briefly with these values of its configuration; status 1 where it breaks a rule.

    Raises
    ------
    ConfigError
        The configuration is none, or `toggles` holds no name.
    """
    only = None if toggles is None else [name.strip() for name in toggles.split(",") if name.strip()]
    if only == []:
        raise ConfigError("--toggles holds no name; write those of toggles, as --toggles amp,compile")
    cfg = composition.compose("run", [f"workload={workload}", *values])
    return run_check(cfg, values, only)


class Doing:
    """Progress of a check for a waiting user: redrawn on a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console, checked: Checked) -> None:
        self._console, self._checked, self._what = console, checked, "setting up"
        self._started = self._last_line = time.monotonic()

    def __call__(self, what: str) -> None:
        """Take note of what comes next."""
        self._what = what
        if not self._console.is_terminal and time.monotonic() - self._last_line > LOG_EVERY_S:
            self._last_line = time.monotonic()
            self._console.print(str(self))

    def __rich__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        done, spent_s = self._checked.trials, time.monotonic() - self._started
        ahead = max(self._checked.trials_ahead, done + 1)
        left = f", about {spent_s / done * (ahead - done):.0f} s left" if done else ""
        return f"trial {done + 1} of about {ahead}, {spent_s:.0f} s{left}: {self._what}"


def run_check(cfg: DictConfig, values: Sequence[str] = (), toggles: Sequence[str] | None = None) -> int:
    """Run the workload, print what is wrong with it, and return 1 if something is.

    Parameters
    ----------
    values : the words that `cfg` was composed from
    toggles : only their levels; None: all

    Raises
    ------
    ConfigError
        A value or a toggle does not exist, or the baseline needs more time than it has.
    """
    console, started = console_here(), time.monotonic()
    with ExitStack() as stack:
        with console.status(Text(f"importing {cfg.workload.name}")) if console.is_terminal else nullcontext():
            checked = stack.enter_context(checking(cfg, values, toggles))
        device, limit = checked.device, checked.manifest.sweep.measure.timeout_s
        console.print(
            f"checking {checked.name}: {len(checked.manifest.arms)} arms on {device.name or device.type},"
            f" about {checked.trials_ahead} trials of at most {limit:g} s each (measure.timeout_s)"
        )
        findings = []
        checked.tell = doing = Doing(console, checked)
        with console.status(doing) if console.is_terminal else nullcontext():
            for finding in checked.findings():
                console.print(
                    Text.assemble((f"\n{finding.defect.value}", "bold red"), f": {finding.subject}")
                )
                console.print(finding.text)
                findings.append(finding)
        _conclude(console, checked, findings)
        if log := checked.keep_log():
            console.print(f"log: {log}", soft_wrap=True)
    seconds = time.monotonic() - started
    console.print(f"{checked.trials} trials in {seconds:.0f} s", style="dim")
    return SOME_FAILED if findings else DONE


def _conclude(console: Console, checked: Checked, findings: list[Finding]) -> None:
    console.print("")
    for refused in checked.manifest.refused:
        console.print(f"not checked: {refused.toggle}={refused.level}: {refused.reason}", style="dim")
    for label, reason in checked.left_out.items():
        console.print(f"not checked: {label}: {reason}", style="dim")
    for level, what in checked.choices.items():
        console.print(f"no defect: {level}: {what}")
    if findings:
        console.print(
            f"{len(findings)} {'defects' if len(findings) > 1 else 'defect'} in {checked.name}", style="red"
        )
        return
    console.print(
        f"no defects: {checked.name} is reproducible, its evidence is complete, no state leaks, no host reads"
        f" in a step, and {checked.compared} levels take effect and keep their parity class",
        style="green",
    )
