"""pyinstrument: which Python functions the host's time goes to, by samples of the stack."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfsweep.pipelines.profiling.tool import Findings, Measured, Tick, Tool, nothing
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.profiles import Cost

TEXT, PAGE, SPEEDSCOPE = "profile.txt", "profile.html", "profile.speedscope.json"

FEW_SAMPLES = 30
"""Samples under which shares are off by a fifth or more: the error of a share p of n samples is sqrt(p (1 -
p) / n)."""


class Sampling(Tool):
    """Samples the stack of the thread that iterates; one session over all repetitions of the slice."""

    samples = True

    def __init__(self, options: ProfileConfig, folder: Path) -> None:
        super().__init__(options, folder)
        from pyinstrument import Profiler

        self._profiler = Profiler(interval=options.interval_s)

    @contextmanager
    def block(self, lead: int, length: int | None) -> Iterator[Tick]:
        self._profiler.start(target_description="the profiled slice, all repetitions")
        try:
            yield nothing
        finally:
            self._profiler.stop()

    def finish(self, measured: Measured) -> Findings:
        from pyinstrument.renderers import HTMLRenderer, SpeedscopeRenderer

        session = self._profiler.last_session
        if session is None or session.sample_count == 0:
            return Findings(notes=(self._too_few(0),))
        (self.folder / TEXT).write_text(self._profiler.output_text(unicode=True, show_all=False))
        (self.folder / PAGE).write_text(HTMLRenderer().render(session))
        (self.folder / SPEEDSCOPE).write_text(SpeedscopeRenderer(show_all=True).render(session))
        notes = (self._too_few(session.sample_count),) if session.sample_count < FEW_SAMPLES else ()
        facts = (("samples", float(session.sample_count)), ("interval_s", self.options.interval_s))
        return Findings(self_times(session), facts, notes=notes)

    def _too_few(self, samples: int) -> str:
        session = self._profiler.last_session
        time = "no time" if session is None else f"{session.duration * 1e3:.3g} ms"
        return (
            f"{samples} samples in {time}: take more iterations, such as "
            f"profile.slice=0:500, or profile.interval_s={self.options.interval_s / 10:g}"
        )


def self_times(session: Any) -> tuple[Cost, ...]:
    """Time of each function without the functions it called, the longest first.

    pyinstrument puts a function's own time into children of their own, called ``[self]``.
    """
    own: dict[tuple[str, str], float] = {}
    root = session.root_frame()
    waiting = [root] if root is not None else []
    while waiting:
        frame = waiting.pop()
        inner = [child for child in frame.children if not child.is_synthetic]
        key = (frame.function, _where(frame))
        own[key] = own.get(key, 0.0) + frame.time - sum(child.time for child in inner)
        waiting += inner
    longest = sorted(own, key=lambda key: own[key], reverse=True)
    return tuple(
        Cost(name=name, where=where, self_ns=own[name, where] * 1e9)
        for name, where in longest
        if own[name, where] > 0
    )


def _where(frame: Any) -> str:
    """File and line of a function, short enough for a table; built-in functions have none."""
    file = frame.file_path_short or frame.file_path or ""
    return "" if not file or file.startswith("<") else f"{file}:{frame.line_no}"
