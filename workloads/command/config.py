"""What a command is, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class CommandConfig:
    """A program that is run as a whole, again and again.

    Attributes
    ----------
    command : program and arguments; no shell reads them. ``{seed}``, ``{scratch}`` (a folder that is empty
        before every run) and ``{TOGGLE}`` are filled in; arguments of toggles that it does not name follow
    folder : current folder of the program
    toggles : see `perfsweep.workloads.custom_toggles`
    evidence : what shows the result: `file` (paths), `json` (keys of the last JSON line of the output),
        `pattern` (regular expressions with named groups, the last match counts), `output` (its content)
    prepare : another command, run before every run and not timed
    timeout : seconds for one run; None: as long as the trial has
    expected_status : exit status of a run that went well
    units : what one run does, as a number or as a name in the evidence that the program reports
    data : files that the program reads; with other content, times are not compared
    """

    command: str = ""
    folder: str = "."
    toggles: dict[str, Any] = field(default_factory=dict)
    evidence: dict[str, Any] = field(default_factory=dict)
    prepare: str = ""
    timeout: float | None = None
    expected_status: int = 0
    units: str = "1"
    data: list[str] = field(default_factory=list)
