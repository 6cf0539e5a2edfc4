"""Stages 0 and 1: the device itself.

Does the driver fit, is the GPU ours alone, and do NVML and torch speak of the same one? Does the device's
time line agree with the host's, and is what bounds a loop seen?
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from statistics import median

import torch

from perfsweep.pipelines.analysis.arm_records import bound_by
from perfsweep.pipelines.gpu_check.answer import Here, Line, judged, needs_gpu
from perfsweep.pipelines.store.trial_files import iteration_times
from perfsweep.pipelines.trial.counters import DeviceActivity
from perfsweep.pipelines.trial.machine import gpus
from perfsweep.pipelines.trial.machine.gpus import Gpu, TorchBuild, driver_refusal
from perfsweep.pipelines.trial.timing.clock import DeviceClock
from perfsweep.pipelines.trial.timing.recorder import Recorder, Series
from perfsweep.pipelines.trial.timing.steady import region_alarm
from perfsweep.workloads.peaks import peak
from perfsweep.workloads.training.precision import set_tf32

NAMES = ("driver", "settings", "neighbours", "order", "architecture")


def examine_facts(here: Here) -> Iterator[Line]:
    """Ask driver, settings, neighbours, the order of GPUs, and what the wheel was compiled for."""
    build = gpus.torch_build()
    yield judged("software", True, f"torch {build.version}, CUDA {build.cuda or 'none'}")
    if not here.on_gpu:
        yield from needs_gpu(*NAMES)
        return
    import torch

    visible = gpus.visible()
    count = range(torch.cuda.device_count())
    yield driver_line(build, gpus.driver_version(), gpus.driver_cuda())
    yield settings_line(visible)
    yield neighbours_line(visible)
    yield order_line(
        [gpu.uuid for gpu in visible[: 1 if visible[0].sliced else None]],
        [str(torch.cuda.get_device_properties(one).uuid) for one in count],
    )
    yield architecture_line(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())


def driver_line(build: TorchBuild, driver: str | None, cuda: tuple[int, int] | None) -> Line:
    """Hold the driver against the wheel."""
    refusal = driver_refusal(build, driver, cuda)
    knows = ".".join(map(str, cuda)) if cuda else "unknown"
    fits = f"driver {driver} knows CUDA {knows}, and torch was built with {build.cuda}"
    return judged("driver", refusal is None, refusal or fits)


def settings_line(visible: Sequence[Gpu]) -> Line:
    """What an administrator set; a mode that keeps a second process out fails: arms may stay side by side."""
    first = visible[0]
    closed = [gpu.compute_mode for gpu in visible if gpu.compute_mode in ("prohibited", "one process")]
    limit = "unknown" if first.power_limit_w is None else f"{first.power_limit_w:.0f} W"
    served = ", shared by MPS, whose other clients are not seen" if any(gpu.mps for gpu in visible) else ""
    text = (
        f"{len(visible)} x {first.name}, power limit {limit}, SM clock at most {first.sm_clock_max_mhz} MHz,"
        f" ECC {_on(first.ecc)}, persistence {_on(first.persistence)}, compute mode {first.compute_mode}"
        f"{served}"
    )
    if closed:
        text += f": the mode '{closed[0]}' keeps a second arm out; ask for Default (nvidia-smi -c 0)"
    return judged("settings", not closed, text, gpus=len(visible), power_limit_w=first.power_limit_w or 0.0)


def _on(setting: bool | None) -> str:
    return {None: "unknown", True: "on", False: "off"}[setting]


def neighbours_line(visible: Sequence[Gpu]) -> Line:
    """No other process computes on our GPUs."""
    foreign = sum(gpu.foreign for gpu in visible)
    return judged("neighbours", not foreign, f"{foreign} processes of others on our GPUs", foreign=foreign)


def order_line(nvml: Sequence[str], torch_uuids: Sequence[str]) -> Line:
    """Whether number i means the same GPU to NVML, which tells of clocks, and to torch, which computes."""
    same = list(map(_bare, nvml)) == list(map(_bare, torch_uuids))
    text = "NVML and torch number the GPUs alike"
    if not same:
        text = (
            f"NVML tells of {', '.join(nvml)} and torch of {', '.join(torch_uuids)}, though both go by"
            " the bus: choose GPUs by their UUIDs (CUDA_VISIBLE_DEVICES=GPU-...)"
        )
    return judged("order", same, text)


def _bare(uuid: str) -> str:
    return re.sub(r"^(GPU|MIG)-", "", uuid)


def architecture_line(capability: tuple[int, int], compiled_for: Sequence[str]) -> Line:
    """Whether the wheel has code for this GPU: machine code of its generation, or PTX of an older one."""
    found = [re.fullmatch(r"(sm|compute)_(\d+)(\d)[af]?", one) for one in compiled_for]
    pairs = [(one[1], (int(one[2]), int(one[3]))) for one in found if one]
    fits = any(made <= capability and (kind == "compute" or made[0] == capability[0]) for kind, made in pairs)
    here = "sm_" + "".join(map(str, capability))
    text = f"{here}; the wheel was compiled for {', '.join(compiled_for)}"
    return judged("architecture", fits, text if fits else f"{text}: install one that has {here}")


SLEEPS, SLEEP_NS = 10, 20_000_000
AGREEMENT = 0.02
"""Relative difference of two time lines that is none."""

ITERATIONS, LAUNCHES, LAUNCH_NS = 60, 60, 50_000
"""Of the device-bound loop: more launches than a device queues, each far longer than launching it takes."""

HOST_NS = 1_000_000
WARM_NS = 1_000_000_000

SIDE = 8192
"""Of the square matrices that are multiplied."""

COPIED_BYTES = 2**30
_CALIBRATION_CYCLES = 20_000_000


class CudaBench:
    """The current CUDA device, kept busy for a known time: it sleeps, multiplies and copies."""

    def __init__(self) -> None:
        self.clock = DeviceClock("cuda")
        torch.cuda._sleep(_CALIBRATION_CYCLES)  # the first launch loads the kernel
        self._cycles_per_ns = _CALIBRATION_CYCLES / self._timed_ns(
            lambda: torch.cuda._sleep(_CALIBRATION_CYCLES), 5
        )

    def launch(self, duration_ns: int) -> None:
        """Have the device sleep, by a kernel that counts cycles."""
        torch.cuda._sleep(round(duration_ns * self._cycles_per_ns))

    def host(self, duration_ns: int) -> None:
        """Spin on the host."""
        until = self.clock.now_ns() + duration_ns
        while self.clock.now_ns() < until:
            pass

    def busy_ns(self, work: Callable[[], None]) -> float | None:
        """What the profiler saw of kernels while `work` ran."""
        with DeviceActivity() as activity:
            work()
        return activity.result(1, 1)["device_busy_ns"]

    def rates(self) -> dict[str, float]:
        """Products in FLOP/s by their type, copies in bytes per second; a device copy reads and writes."""
        rates = {kind: self._products(kind) for kind in ("half", "tf32", "float32")}
        here = torch.empty(COPIED_BYTES, dtype=torch.uint8, device=self.clock.device)
        there, pageable = torch.empty_like(here), torch.empty(COPIED_BYTES, dtype=torch.uint8)
        pinned = torch.empty(COPIED_BYTES, dtype=torch.uint8, pin_memory=True)
        sources = {"device": there, "pinned": pinned, "pageable": pageable}
        for name, source in sources.items():
            ns = self._timed_ns(lambda source=source: here.copy_(source, non_blocking=True), 10)
            rates[name] = (2 if name == "device" else 1) * COPIED_BYTES / ns * 1e9
        return rates

    def _products(self, kind: str) -> float:
        dtype = torch.bfloat16 if kind == "half" else torch.float32
        left, right = (torch.randn(SIDE, SIDE, device=self.clock.device).to(dtype) for _ in range(2))
        with ExitStack() as undo:
            set_tf32(kind == "tf32", undo)
            return 2 * SIDE**3 / self._timed_ns(lambda: left @ right, 20) * 1e9

    def _timed_ns(self, work: Callable[[], object], times: int) -> float:
        """Device time of one call, after some that are not timed."""
        for _ in range(3):
            work()
        first = self.clock.event()
        for _ in range(times):
            work()
        last = self.clock.event()
        self.clock.synchronize()
        taken_ns = self.clock.elapsed_ns(first, last) / times
        self.clock.release(first)
        self.clock.release(last)
        return taken_ns


def examine_clock(here: Here) -> Iterator[Line]:
    """Ask events, a device-bound and a host-bound loop, and the rates of products and copies."""
    if not here.on_gpu:
        yield from needs_gpu("events", "device-bound loop", "host-bound loop", "rates")
        return
    bench = CudaBench()
    yield from lines_of(bench)
    yield from rate_lines(here.device.name, bench.rates())


def lines_of(bench: CudaBench) -> Iterator[Line]:
    """Judge the time lines of a device."""
    for _ in range(WARM_NS // SLEEP_NS):
        bench.launch(SLEEP_NS)
    yield events_line(bench)
    yield device_bound_line(bench)
    yield host_bound_line(bench)


def events_line(bench: CudaBench) -> Line:
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


def device_bound_line(bench: CudaBench) -> Line:
    """A loop that never waits is judged, and its iterations are timed, by the device and not by launches."""
    series = _device_bound(bench)
    if region_alarm(series.judged_ns(1)) is not None:
        series = _device_bound(bench)  # as a trial does
    alarm = region_alarm(series.judged_ns(1))
    arrays = {"wall_ns": series.wall_ns}
    if series.device_ns is not None:
        arrays["device_ns"] = series.device_ns
    off = median(iteration_times(arrays)) / (series.region_ns / ITERATIONS) - 1
    text = f"{alarm or 'no alarm'}; median iteration against the region: {off:+.2%}"
    return judged("device-bound loop", alarm is None and abs(off) <= AGREEMENT, text, off=off)


def _device_bound(bench: CudaBench) -> Series:
    recorder = Recorder(bench.clock)
    recorder.start()
    for _ in range(ITERATIONS):
        for _ in range(LAUNCHES):
            bench.launch(LAUNCH_NS)
        recorder.lap()
    recorder.stop()
    return recorder.series()


def host_bound_line(bench: CudaBench) -> Line:
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
