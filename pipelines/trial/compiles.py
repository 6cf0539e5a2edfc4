"""What torch.compile did: graphs, recompiles and why, graph breaks, seconds, caches; and Triton by itself."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

_COMPILE_ID = re.compile(r"\d+/(\d+)(?:_\d+)?$")  # frame/how often compiled before, and attempts
_PLACE = re.compile(r"^\d+/\d+(_\d+)?:\s*")
_MOST_METRICS = 4096  # torch remembers 64 compiles, fewer than a model of many blocks makes

# What is reported, as (group, name) in Dynamo's counters; None means the whole group.
_TOTALS: dict[str, tuple[tuple[str, str | None], ...]] = {
    "compiled_graphs": (("stats", "unique_graphs"),),
    "graph_breaks": (("graph_break", None),),
    "cudagraph_skips": (("inductor", "cudagraph_skips"),),
    "cache_hits": (("inductor", "fxgraph_cache_hit"), ("aot_autograd", "autograd_cache_hit")),
    "cache_misses": (("inductor", "fxgraph_cache_miss"), ("aot_autograd", "autograd_cache_miss")),
}
_LIMIT = "recompile_limit_hit"


class CompileCounting:
    """Counts what torch.compile does while entered; cheap enough to `poll` between timed iterations.

    Three sources are combined, since each has a hole: start callbacks (they also tell of lazy backward passes
    and graph recordings, but ``torch._dynamo.reset()`` forgets them, so every poll registers again), Dynamo's
    counters (which outlive a reset but do not see backward passes), and compilation metrics (reasons and
    seconds). Of hand-written kernels, which torch.compile knows nothing of, Triton's own listener tells.
    Nothing is imported that the measured code has not imported.

    Attributes
    ----------
    recompile_reasons : the guard that failed, for each recompile
    """

    def __init__(self) -> None:
        self.recompile_reasons: tuple[str, ...] = ()
        self._started = 0
        self._recordings = 0
        self._recompiles = 0
        self._compile_s = 0.0
        self._kernels = KernelCompiles()
        self._before: dict[str, int] = {}
        self._seen: tuple[int, ...] = ()
        self._limits_seen = 0
        self._last_metric: Any = None
        self._final: dict[str, float | None] | None = None

    def __enter__(self) -> CompileCounting:
        self._listen()
        self._before = _totals() or {}
        self._limits_seen = self._before.get(_LIMIT, 0)
        self._last_metric = next(reversed(_metrics() or []), None)
        self._seen = self._state()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._final = self.result()
        self._kernels.stop()
        if handler := _callback_handler():
            with suppress(ValueError):  # torch._dynamo.reset() may have forgotten it
                handler.remove_start_callback(self._on_start)

    def poll(self) -> bool:
        """Whether code was compiled, or that was given up, since the last poll; a microsecond where not."""
        if not sys.modules.keys() & {"torch._dynamo.utils", KNOBS}:
            return False
        self._listen()
        state, before = self._state(), self._seen
        if state == before:
            return False
        limits, limits_before = (_totals() or {}).get(_LIMIT, 0), self._limits_seen
        self._seen, self._limits_seen = state, limits
        recompiled = self._harvest() > 0
        # A frame that Dynamo has looked at, and no more, was not compiled.
        return recompiled or limits > limits_before or state[:-1] != before[:-1]

    @property
    def main_reason(self) -> str:
        """What most recompiles had in common; "" without any."""
        return next((kind for kind, _ in Counter(map(kind_of, self.recompile_reasons)).most_common(1)), "")

    @property
    def notes(self) -> tuple[str, ...]:
        """What this release of torch does not tell, as phrases."""
        missing = {
            "torch._dynamo.utils has no counters": _totals() is None,
            "torch._dynamo.utils has no get_compilation_metrics": _metrics() is None,
            "torch._dynamo.callback has no callback_handler": _deaf(),
        }
        return tuple(note for note, holds in missing.items() if holds)

    def result(self) -> dict[str, float | None]:
        """Count compiling since entering, by name.

        compiled_graphs, graph_breaks, recompiles, recompile_limit_hit (0 or 1), compile_s, cudagraph_skips,
        cudagraph_recordings, cache_hits and cache_misses (of Inductor and AOTAutograd together);
        compiled_kernels of those written by hand, whose seconds are part of compile_s.
        """
        if self._final is not None:
            return dict(self._final)
        self._harvest()
        now = _totals()
        found: dict[str, float | None] = dict.fromkeys((*_TOTALS, _LIMIT))
        for name, total in (now or {}).items():
            before = self._before.get(name, 0)
            # The program may have cleared them.
            found[name] = float(total - before if total >= before else total)
        if found[_LIMIT]:
            found[_LIMIT] = 1.0
        counted = _metrics() is not None
        found["recompiles"] = float(self._recompiles) if counted else None
        found["compile_s"] = self._compile_s + self._kernels.seconds if counted else None
        found["compiled_kernels"] = float(self._kernels.count)
        found["cudagraph_recordings"] = None if _deaf() else float(self._recordings)
        return found

    def _on_start(self, args: Any) -> None:
        self._started += 1
        self._recordings += (
            getattr(getattr(args, "callback_trigger", None), "name", "") == "CUDAGRAPH_RECORDING"
        )

    def _listen(self) -> None:
        """Register with Triton, and with Dynamo, again where a reset forgot it."""
        self._kernels.listen()
        handler = _callback_handler()
        if handler is None or self._on_start in handler.start_callbacks:
            return
        handler.register_start_callback(self._on_start)
        keep_more = getattr(sys.modules.get("torch._dynamo.utils"), "set_compilation_metrics_limit", None)
        if keep_more is not None:
            keep_more(_MOST_METRICS)

    def _state(self) -> tuple[int, ...]:
        """What moves when something happened: starts, graphs, skips, kernels, frames."""
        counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
        if counters is None:
            return (self._started, 0, 0, self._kernels.count, 0)
        graphs, skips = counters["stats"]["unique_graphs"], counters["inductor"]["cudagraph_skips"]
        return (self._started, graphs, skips, self._kernels.count, counters["frames"]["total"])

    def _harvest(self) -> int:
        """Take in new compilation metrics; returns how many recompiles were among them."""
        metrics = _metrics() or []
        old = next(
            (place for place in reversed(range(len(metrics))) if metrics[place] is self._last_metric), -1
        )
        new = [metric for metric in metrics[old + 1 :] if not getattr(metric, "is_runtime", False)]
        self._last_metric = metrics[-1] if metrics else None
        self._compile_s += sum(map(_seconds, new))
        reasons = [str(getattr(metric, "recompile_reason", None)) for metric in new if _is_recompile(metric)]
        self._recompiles += len(reasons)
        self.recompile_reasons += tuple(reasons)
        return len(reasons)


def kind_of(reason: str) -> str:
    """The guard that failed, without the frame and the values, which differ each time."""
    guard = _PLACE.sub("", reason.partition("\n")[0]).partition("  #")[0]
    return re.split(r"\s+[=!]=\s|\. expected", guard)[0].strip()


def _callback_handler() -> Any:
    handler = getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)
    usable = all(
        hasattr(handler, name)
        for name in ("start_callbacks", "register_start_callback", "remove_start_callback")
    )
    return handler if usable else None


def _deaf() -> bool:
    return "torch._dynamo.utils" in sys.modules and _callback_handler() is None


def _totals() -> dict[str, int] | None:
    """Dynamo's counters, zeros while it is not imported; None where this release has none."""
    if "torch._dynamo.utils" not in sys.modules:
        return dict.fromkeys((*_TOTALS, _LIMIT), 0)
    counters = getattr(sys.modules["torch._dynamo.utils"], "counters", None)
    if counters is None:
        return None
    totals = {
        name: sum(
            sum(counters[group].values()) if key is None else counters[group][key] for group, key in parts
        )
        for name, parts in _TOTALS.items()
    }
    # Beyond the limit a frame runs eagerly from then on; the only trace of it is a text.
    limits = [count for text, count in counters["unimplemented"].items() if "recompile limit" in text.lower()]
    return {**totals, _LIMIT: sum(limits)}


def _metrics() -> list[Any] | None:
    """One entry per compile of a frame or backward pass, oldest first; None where this release has none."""
    if "torch._dynamo.utils" not in sys.modules:
        return []
    get = getattr(sys.modules["torch._dynamo.utils"], "get_compilation_metrics", None)
    return None if get is None else get()


def _seconds(metric: Any) -> float:
    """Forward entries have both figures, equal; entries of backward passes only the second."""
    return (
        getattr(metric, "entire_frame_compile_time_s", None)
        or (getattr(metric, "duration_us", None) or 0) / 1e6
    )


def _is_recompile(metric: Any) -> bool:
    found = _COMPILE_ID.search(str(getattr(metric, "compile_id", "")))
    succeeded = (
        getattr(metric, "fail_type", None) is None and getattr(metric, "is_forward", None) is not False
    )
    return bool(found and int(found[1]) > 0 and succeeded)


KNOBS = "triton.knobs"
"""The module of Triton that has its listener, since release 3.4."""

_GENERATED = "torch._inductor."
"""Beginning of the modules that Inductor's own kernels are in."""


class KernelCompiles:
    """Counts kernels that Triton compiles, and the seconds; code that is found on disk is none.

    Attributes
    ----------
    count, seconds : of kernels written by hand, compiled since `listen`
    """

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self._before: Any = None
        self._compilation: Any = None

    def listen(self) -> None:
        """Listen to Triton's kernels, and pass on to an earlier one; nothing while it is not imported."""
        compilation = getattr(sys.modules.get(KNOBS), "compilation", None)
        if self._compilation is not None or compilation is None or not hasattr(compilation, "listener"):
            return
        self._compilation, self._before = compilation, compilation.listener
        compilation.listener = self._on_compile

    def stop(self) -> None:
        """Leave the listener as it was found, unless another one is there by now."""
        if self._compilation is not None and self._compilation.listener == self._on_compile:
            self._compilation.listener = self._before
        self._compilation = None

    def _on_compile(
        self, *, src: Any, metadata: Mapping[str, Any], metadata_group: Any, times: Any, cache_hit: bool
    ) -> None:
        if self._before is not None:
            self._before(
                src=src, metadata=metadata, metadata_group=metadata_group, times=times, cache_hit=cache_hit
            )
        module = getattr(getattr(src, "fn", None), "__module__", "") or ""
        if not cache_hit and not module.startswith(_GENERATED):
            self.count += 1
            self.seconds += times.total / 1e6  # microseconds
