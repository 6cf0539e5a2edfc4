"""What torch.compile made of an arm: graphs, where and why they broke, what was compiled again and why."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfsweep.pipelines.profiling.tool import Findings, Measured, Tick, Tool
from perfsweep.pipelines.store.options import ProfileConfig
from perfsweep.pipelines.store.profiles import Cost
from perfsweep.pipelines.trial.compiles import CompileCounting

EXPLANATION = "explanation.txt"
NOTHING = "nothing was compiled: this arm runs eagerly, so that there are no graphs to explain"


class Dynamo(Tool):
    """Watches compilation from set-up on, at the cost of a look at Dynamo's counters each iteration."""

    def __init__(self, options: ProfileConfig, folder: Path) -> None:
        super().__init__(options, folder)
        self._counting = CompileCounting()

    @contextmanager
    def around(self) -> Iterator[None]:
        with self._counting:
            yield

    @contextmanager
    def block(self, lead: int, length: int | None) -> Iterator[Tick]:
        yield self._counting.poll

    def finish(self, measured: Measured) -> Findings:
        found = self._counting.result()
        if not found["compiled_graphs"]:
            (self.folder / EXPLANATION).write_text(NOTHING + "\n")
            return Findings(facts=tuple(found.items()), findings=(NOTHING,), notes=self._counting.notes)
        breaks = _graph_breaks()
        lines = list(explained(found, breaks, self._counting.recompile_reasons))
        (self.folder / EXPLANATION).write_text("\n".join([*lines, "", *_whole(breaks)]) + "\n")
        return Findings(tuple(frames()), tuple(found.items()), tuple(lines), self._counting.notes)


def explained(
    found: dict[str, float | None], breaks: list[Any], recompiles: tuple[str, ...]
) -> Iterator[str]:
    """One sentence for the totals, one for each graph break, one for each reason to compile again."""
    seconds = found["compile_s"]
    time = "" if seconds is None else f" in {seconds:.1f} s"
    yield (
        f"{_number(found['compiled_graphs'], 'graph')}{time},"
        f" {_number(found['graph_breaks'], 'graph break')}, {_number(found['recompiles'], 'recompile')},"
        f" {_number(found['cudagraph_skips'], 'CUDA graph')} skipped"
    )
    for (place, reason), times in Counter((place_of(one), first_line(one.reason)) for one in breaks).items():
        yield f"graph break{_times(times)} at {place}: {reason}"
    for reason, times in Counter(recompiles).items():
        yield f"recompiled{_times(times)}: {first_line(reason)}"
    if found["recompile_limit_hit"]:
        yield "the recompile limit was hit: from then on that frame runs eagerly"


def _number(value: float | None, what: str) -> str:
    return (
        f"an unknown number of {what}s" if value is None else f"{value:g} {what}{'' if value == 1 else 's'}"
    )


def _times(times: int) -> str:
    return "" if times == 1 else f", {times} times,"


def place_of(graph_break: Any) -> str:
    """File, line and function that could not be followed; the innermost frame of the user's."""
    frames = graph_break.user_stack
    return f"{frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else "an unknown place"


def first_line(reason: str) -> str:
    """A reason in one line; the file has the whole."""
    lines = [line.strip() for line in str(reason).strip().splitlines()]
    explanation = next((line.partition(": ")[2] for line in lines if line.startswith("Explanation: ")), "")
    return f"{lines[0]}: {explanation}" if explanation and lines else "".join(lines[:1])


def _whole(breaks: list[Any]) -> Iterator[str]:
    for one in breaks:
        yield f"--- {place_of(one)}\n{str(one.reason).strip()}\n"


def frames() -> Iterator[Cost]:
    """Each compiled frame with its seconds, longest first; calls are the operators in its graphs."""
    get = getattr(sys.modules.get("torch._dynamo.utils"), "get_compilation_metrics", None)
    found: dict[tuple[str, str], list[float]] = {}
    for metric in get() if get else ():
        seconds = getattr(metric, "entire_frame_compile_time_s", None)
        name = getattr(metric, "co_name", None)
        if seconds is None or name is None or getattr(metric, "is_runtime", False):
            continue
        place = (
            f"{Path(getattr(metric, 'co_filename', None) or '').name}:{getattr(metric, 'co_firstlineno', '')}"
        )
        totals = found.setdefault((name, place), [0.0, 0.0])
        totals[0] += seconds * 1e9
        totals[1] += getattr(metric, "graph_op_count", None) or 0
    for (name, place), (spent_ns, operators) in sorted(found.items(), key=lambda item: -item[1][0]):
        yield Cost(name=name, where=place, self_ns=spent_ns, calls=operators)


def _graph_breaks() -> list[Any]:
    """Breaks that Dynamo has noted in this process, empty while it is not imported."""
    noted = getattr(sys.modules.get("torch._dynamo.utils"), "graph_break_reasons", None)
    return [one for one in noted or () if getattr(one, "graph_break", True)]
