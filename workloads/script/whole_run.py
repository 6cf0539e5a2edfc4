"""A script run to its end with levels applied from outside: no trial, nothing is measured.

Started as ``python -P -m perfsweep.workloads.script.whole_run TEXT``, where the text is what `said` makes.
Streams and exit status are the script's own.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from perfsweep.workloads.api import Context, Device, Levels
from perfsweep.workloads.errors import PerfsweepError
from perfsweep.workloads.script.config import ScriptConfig
from perfsweep.workloads.script.program import Ended, status_of
from perfsweep.workloads.script.workload import Script

FAILED, INTERRUPTED = 1, 130
_PATIENCE_S = 1e8
"""For the first iteration: there is no limit to how long a script may prepare."""


def said(config: ScriptConfig, levels: Levels, device: Device) -> str:
    """What `main` is told, as text."""
    return json.dumps([dataclasses.asdict(config), dict(levels), dataclasses.asdict(device)])


class _OwnStreams:
    """Leaves both streams to the script."""

    def start(self, undo: ExitStack) -> None:
        """Put nothing in their place."""

    def last_words(self) -> str:
        """None: they were seen."""
        return ""


class _Whole(Script):
    """A script that is not interrupted to be measured."""

    streams = _OwnStreams

    def _environment(self) -> dict[str, str]:
        return {}

    def _patience(self) -> float:
        return _PATIENCE_S

    def _advance(self) -> None:
        self._program.advance()
        self._watched.end_iteration()

    def to_its_end(self, config: ScriptConfig, levels: Levels, context: Context) -> None:
        """Run the script with the levels, until it comes to its end or ends itself."""
        try:
            self.setup(config, levels, context)
            while True:
                self._advance()
        except Ended:
            return


def main(text: str) -> int:
    """Run a script; the status that it ends with."""
    values, levels, facts = json.loads(text)
    config = ScriptConfig(**{**values, "writes": "allow"})
    facts["capability"] = tuple(facts["capability"]) if facts["capability"] else None
    cls = type("Whole", (_Whole, Script.configured(config)), {"__module__": __name__})
    with TemporaryDirectory(prefix="perfsweep-run-") as scratch:
        around = Context(
            Device(**facts), Path(scratch), Path(scratch), deadline=time.monotonic() + _PATIENCE_S
        )
        try:
            cls().to_its_end(config, levels, around)
        except PerfsweepError as error:
            if isinstance(error.__cause__, SystemExit):
                return status_of(error.__cause__)
            print(error, file=sys.stderr)
            return FAILED
        except KeyboardInterrupt:
            return INTERRUPTED
        except Exception as error:  # noqa: BLE001 - it is the script's, and is told as Python tells it
            trace = _from_script(error.__traceback__, cls.origin)
            sys.excepthook(type(error), error.with_traceback(trace), trace)
            return FAILED
    return 0


def _from_script(trace: TracebackType | None, file: str) -> TracebackType | None:
    """A traceback from the script's first frame on."""
    frame: Any = trace
    while frame is not None and frame.tb_frame.f_code.co_filename != file:
        frame = frame.tb_next
    return frame or trace


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
