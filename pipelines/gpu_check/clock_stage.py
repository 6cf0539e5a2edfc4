"""Stage 1: does the device's time line agree with the host's, and is what bounds a loop seen?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Protocol

from perfsweep.pipelines.analysis.arm_records import bound_by
from perfsweep.pipelines.gpu_check.answer import Here, Line, judged, needs_gpu
from perfsweep.pipelines.store.trial_files import iteration_times
from perfsweep.pipelines.trial.timing.clock import EventClock
from perfsweep.pipelines.trial.timing.recorder import Recorder, Series
from perfsweep.pipelines.trial.timing.steady import region_alarm
from perfsweep.workloads.peaks import peak

SLEEPS, SLEEP_NS = 10, 20_000_000
AGREEMENT = 0.02
"""Relative difference of two time lines that is none."""

ITERATIONS, LAUNCHES, LAUNCH_NS = 60, 60, 50_000
"""Of the device-bound loop: more launches than a device queues, each far longer than launching it takes."""

HOST_NS = 1_000_000
WARM_NS = 1_000_000_000


class Bench(Protocol):
    """A device that can be kept busy for a known time."""

    @property
    def clock(self) -> EventClock:
        """Its time lines, and the host's."""
        ...

    def launch(self, duration_ns: int) -> None:
        """Give the device work for a while; the host goes on at once."""
        ...

    def host(self, duration_ns: int) -> None:
        """Keep the host busy for a while."""
        ...

    def busy_ns(self, work: Callable[[], None]) -> float | None:
        """How long the device worked for `work`; None where nothing was seen."""
        ...


def examine(here: Here) -> Iterator[Line]:
    """Ask events, a device-bound and a host-bound loop, and the rates of products and copies."""
    if not here.on_gpu:
        yield from needs_gpu("events", "device-bound loop", "host-bound loop", "rates")
        return
    from perfsweep.pipelines.gpu_check.cuda_bench import CudaBench

    bench = CudaBench()
    yield from lines_of(bench)
    yield from rate_lines(here.device.name, bench.rates())


def lines_of(bench: Bench) -> Iterator[Line]:
    """Judge the time lines of a device."""
    for _ in range(WARM_NS // SLEEP_NS):
        bench.launch(SLEEP_NS)
    yield events_line(bench)
    yield device_bound_line(bench)
    yield host_bound_line(bench)


def events_line(bench: Bench) -> Line:
    """Hold the time between two events around a sleep of the device against the host's."""
    clock, host_ns, device_ns = bench.clock, 0, 0
    for _ in range(SLEEPS):
        clock.synchronize()
        begin, first = clock.now_ns(), clock.event()
        bench.launch(SLEEP_NS)
        last = clock.event()
        clock.synchronize()
        host_ns += clock.now_ns() - begin
        device_ns += clock.elapsed_ns(first, last)
        clock.release(first)
        clock.release(last)
    off = device_ns / host_ns - 1
    return judged("events", abs(off) <= AGREEMENT, f"events against the host: {off:+.2%}", off=off)


def device_bound_line(bench: Bench) -> Line:
    """A loop that never waits is judged, and its iterations are timed, by the device and not by launches."""
    series = _device_bound(bench)
    if region_alarm(series.judged_ns(1), series.flags) is not None:
        series = _device_bound(bench)  # as a trial does
    alarm = region_alarm(series.judged_ns(1), series.flags)
    arrays = {"wall_ns": series.wall_ns}
    if series.device_ns is not None:
        arrays["device_ns"] = series.device_ns
    off = median(iteration_times(arrays)) / (series.region_ns / ITERATIONS) - 1
    text = f"{alarm or 'no alarm'}; median iteration against the region: {off:+.2%}"
    return judged("device-bound loop", alarm is None and abs(off) <= AGREEMENT, text, off=off)


def _device_bound(bench: Bench) -> Series:
    recorder = Recorder(bench.clock)
    recorder.start()
    for _ in range(ITERATIONS):
        for _ in range(LAUNCHES):
            bench.launch(LAUNCH_NS)
        recorder.lap()
    recorder.stop()
    return recorder.series()


def host_bound_line(bench: Bench) -> Line:
    """A device that rests most of the time is said to."""

    def loop() -> None:
        for _ in range(ITERATIONS):
            bench.host(HOST_NS)
            bench.launch(LAUNCH_NS)
        bench.clock.synchronize()

    bench.clock.synchronize()
    begin = bench.clock.now_ns()
    loop()
    wall_ns = bench.clock.now_ns() - begin
    busy_ns = bench.busy_ns(loop)
    text = bound_by(busy_ns, wall_ns) or "the profiler saw no kernel"
    share = (busy_ns or 0.0) / wall_ns
    due = ITERATIONS * LAUNCH_NS / wall_ns
    good = text.startswith("host-bound") and abs(share / due - 1) <= 0.5
    return judged("host-bound loop", good, f"{text}, {due:.0%} was asked for", share=share)


ABOVE = 1.03
"""No rate passes its peak: above it the clock or the table of peaks is wrong."""

BELOW = 0.25
"""Of the peak: large products and copies reach more, unless the GPU is shared, split or held down."""

PINNED = 0.9
"""Of the rate from pageable memory: where a GPU encrypts what it is sent (confidential computing), both go at
one rate, within noise."""

PRODUCTS = {"half": "bf16 products", "tf32": "TF32 products", "float32": "float32 products"}
COPIES = {"device": "device copies", "pinned": "pinned copies to the device", "pageable": "pageable ones"}


def rate_lines(device: str, rates: Mapping[str, float]) -> Iterator[Line]:
    """Judge rates by name: products in FLOP/s, copies in bytes per second."""
    best = peak(device)
    for kind, words in PRODUCTS.items():
        most = best.flops_per_s(kind) if best else None
        yield _against(words, rates[kind], most, f"{rates[kind] / 1e12:.0f} TFLOP/s")
    copied = rates["device"]
    yield _against(COPIES["device"], copied, best.bytes_per_s if best else None, f"{copied / 1e12:.2f} TB/s")
    pinned, pageable = rates["pinned"], rates["pageable"]
    text = f"{pinned / 1e9:.1f} GB/s, {COPIES['pageable']} {pageable / 1e9:.1f} GB/s"
    yield judged(COPIES["pinned"], pinned >= PINNED * pageable, text, pinned=pinned, pageable=pageable)


def _against(name: str, rate: float, most: float | None, text: str) -> Line:
    if most is None:
        return judged(name, rate > 0, f"{text}; no peak is known for this device", rate=rate)
    share = rate / most
    why = "" if share <= ABOVE else ": more than it can, so the clock or the table of peaks is wrong"
    why = why or ("" if share >= BELOW else ": is the GPU shared, split or held down?")
    return judged(name, BELOW <= share <= ABOVE, f"{text}, {share:.0%} of the peak{why}", rate=rate)
