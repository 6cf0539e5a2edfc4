"""What trials without times do: count, keep evidence, follow the numbers, train to a target or to the end.

Evidence includes single iterations that are replayed from the baseline's states: they show where an arm first
differs from it. Two correct trainings drift apart step after step, and their last parameters say little. So
the baseline keeps its state before a few of its iterations, and the gradient that its optimizer was then
given. Another arm loads each of these states, does that one iteration, and its gradient is compared. A
mistake shows at its iteration and in its tensor, before rounding errors grow.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from perfsweep.pipelines.store import trial_files
from perfsweep.pipelines.store.options import Target
from perfsweep.pipelines.store.trial_files import write_evidence, write_status
from perfsweep.pipelines.store.trial_schema import LOOP_BY_REGION, TrialSpec
from perfsweep.pipelines.trial import ranks
from perfsweep.pipelines.trial.compiles import CompileCounting
from perfsweep.pipelines.trial.counters import Counting, CountingGc, DeviceActivity
from perfsweep.pipelines.trial.step_logging import MetricLog
from perfsweep.pipelines.trial.timing.iterations import (
    Duration,
    beat_of,
    iterate,
    numbers_of,
    over_a_cadence,
    whole_cadences,
)
from perfsweep.pipelines.trial.timing.regions import clock_of
from perfsweep.workloads import preloads
from perfsweep.workloads.api import REPLAYED, Device, Evidence, NullClock, Replayable, Workload
from perfsweep.workloads.errors import ConfigError


def counting_trial(
    workload: Workload, spec: TrialSpec, folder: Path, device: Device, log: MetricLog
) -> dict[str, Any]:
    """Count, in passes: undisturbed, for compile and workload counters; by a device; under dispatch modes.

    Dispatch modes force compiled code to run eagerly, and captured code as it is written: they count the
    arm's arithmetic, not its kernels. Nothing comes after them, since code may have to be captured again.
    """
    write_status(folder, "counting")
    clock = NullClock()
    iterations = whole_cadences(workload, spec.measure.counting_iterations)
    with CompileCounting() as compiling, CountingGc() as collecting:
        iterate(workload, clock, iterations)
    clock_of(workload, device).find_devices()
    calls = {"mkl_asked": preloads.mkl_asked(), "wandb_calls": log.calls, "wandb_commits": log.commits}
    own = {**workload.counters(), **calls}
    if workload.shape == "steps":  # cadences differ between arms, so totals would not compare
        own = {name: value / iterations for name, value in own.items()}
    units = workload.progress()
    active = _device_activity(workload, spec, device) if device.type != "cpu" else {}
    if workload.shape == "job":
        workload.reset()
    with workload.uncaptured(), Counting() as counting:
        counting.iterations = _some_iterations(workload, clock, spec.measure.counting_iterations)
    counters = {**counting.result(), **compiling.result(), **collecting.result(), **active, **own}
    return {"counters": counters, "units": units}


def _device_activity(workload: Workload, spec: TrialSpec, device: Device) -> dict[str, float | None]:
    """A pass under the profiler, for what only the device can tell, of this process alone."""
    if workload.child_usage() is not None:
        return {}
    if workload.shape == "job":
        workload.reset()
    clock = clock_of(workload, device)
    before = workload.progress()
    clock.synchronize()
    with DeviceActivity() as activity:
        iterations = _some_iterations(
            workload, NullClock(), whole_cadences(workload, spec.measure.counting_iterations)
        )
        clock.synchronize()
    return activity.result(iterations, workload.progress() - before)


def evidence_trial(
    workload: Workload, spec: TrialSpec, folder: Path, device: Device, log: MetricLog
) -> dict[str, Any]:
    """Run a fixed number of iterations, or one job, deterministically, and keep what was computed.

    Raises
    ------
    ConfigError
        A target is asked for, and the workload has no number of its figure's name: better said now than by
        trainings, when all else is measured.
    """
    write_status(folder, "computing evidence")
    begin_evidence(workload)
    training, states = workload.replayable(), Path(spec.replay) if spec.replay else None
    replayed = Evidence()
    duration = Duration(clock_of(workload, device), spec.measure.evidence_iterations // 2)

    def step() -> None:
        with duration:
            workload.step(NullClock())

    own = states is not None and states.parent == folder
    if training is not None and states is not None and own:
        kept = states if ranks.leads(spec.world) else None
        replayed = keep_states(training, spec.measure.evidence_iterations, step, kept)
    elif workload.shape == "steps":
        for _ in range(spec.measure.evidence_iterations):
            step()
    else:
        iterate(workload, NullClock(), spec.measure.evidence_iterations)
    units = workload.progress()
    numbers = numbers_of(workload)
    if target := Target.of(spec.measure):
        _figure(numbers, target.figure)
    iteration_ns = duration.mean_ns
    evidence = workload.evidence()
    evidence.numbers = {**workload.numbers(), **evidence.numbers}
    if training is not None and states is not None and not own:
        replayed = replay(training, step, states)
    evidence.tensors = {
        name: _as_array(tensor) for name, tensor in {**evidence.tensors, **replayed.tensors}.items()
    }
    evidence.parts |= replayed.parts
    if ranks.leads(spec.world):
        write_evidence(folder, evidence)
    reached = 0 if workload.shape == "job" else spec.measure.evidence_iterations
    if spec.world == 1 and workload.cadence > reached > 0:
        clock = clock_of(workload, device)
        iteration_ns = over_a_cadence(workload, clock, spec.measure.region_s) or iteration_ns
    found = {"units": units, "numbers": numbers, "reached": reached, "iteration_ns": iteration_ns}
    if workload.cadence_is_known:
        return found
    if ranks.agree(workload.cadence == 1, spec.world):
        found |= beat_of(workload, clock_of(workload, device), spec.world)
    if spec.world == 1 and (own or states is None):
        _look_for_end(workload, spec, iteration_ns)
    length = {} if workload.length is None else {"length": float(workload.length)}
    return found | {"quantities": {**found.get("quantities", {}), **length}}


def _look_for_end(workload: Workload, spec: TrialSpec, iteration_ns: int | None) -> None:
    """Go on for as long as timing trials may: a script may have fewer iterations than a region wants."""
    wanted = spec.measure.region_s * 1e9 / iteration_ns if iteration_ns else 0
    for _ in range(math.ceil(wanted * LOOP_BY_REGION) if spec.measure.iterations is None else 0):
        try:
            workload.step(NullClock())
        except ConfigError:
            if workload.length is None:
                raise
            return


LARGEST_BYTES = 2**29
"""States above this are not kept: several of them would not fit next to a model that fills its device."""

_OWN_OPTIONS = ("foreach", "fused", "capturable", "differentiable", "maximize")


def kept_iterations(iterations: int) -> list[int]:
    """The first two iterations, the middle one and the last."""
    return sorted({0, 1, iterations // 2, iterations - 1} & set(range(iterations)))


def keep_states(
    training: Replayable, iterations: int, step: Callable[[], None], folder: Path | None
) -> Evidence:
    """Iterate; gradients of the kept iterations, and in `folder`, if any, the states before them."""
    found = Evidence()
    taken_bytes = sum(parameter.nbytes for parameter in training.parameters.values())
    chosen = kept_iterations(iterations) if taken_bytes <= LARGEST_BYTES else []
    for number in range(iterations):
        if number in chosen and folder is not None:
            _save_state(training, folder / f"{number}.pt")
        with _gradients(training) as gradients:
            step()
        if number in chosen:
            _enter(found, number, gradients)
    return found


def replay(training: Replayable, step: Callable[[], None], folder: Path) -> Evidence:
    """Gradients of single iterations from the states in `folder`; none if parameters are kept differently.

    An iteration without an update, as after an overflow in half precision, has no entry.
    """
    found = Evidence()
    for file in sorted(folder.glob("*.pt"), key=lambda file: int(file.stem)):
        saved = torch.load(file, weights_only=True)
        if saved["layout"] != _layout(training):
            return Evidence()
        _load_state(training, saved)
        with _gradients(training) as gradients:
            step()
        _enter(found, int(file.stem), gradients)
    return found


def _enter(found: Evidence, number: int, gradients: dict[str, torch.Tensor]) -> None:
    if gradients:
        name = REPLAYED + str(number)
        found.tensors[name] = torch.cat(list(gradients.values()))
        found.parts[name] = {part: gradient.numel() for part, gradient in gradients.items()}


@contextmanager
def _gradients(training: Replayable) -> Iterator[dict[str, torch.Tensor]]:
    """What the optimizer gets at its next update, flat and on the host, by parameter; empty without one."""
    gradients: dict[str, torch.Tensor] = {}

    def look(*_: Any) -> None:
        for name, parameter in training.parameters.items():
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            gradients[name] = grad.detach().flatten().to("cpu", copy=True)

    hook = training.optimizer.register_step_pre_hook(look)
    try:
        yield gradients
    finally:
        hook.remove()


def _layout(training: Replayable) -> list[list[Any]]:
    return [[name, *parameter.shape] for name, parameter in training.parameters.items()]


def _save_state(training: Replayable, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    random = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        random["cuda"] = torch.cuda.get_rng_state()
    torch.save({"layout": _layout(training), "random": random, "state": dict(training.save())}, file)


def _load_state(training: Replayable, saved: dict[str, Any]) -> None:
    optimizer = training.optimizer
    own = [{name: group[name] for name in _OWN_OPTIONS if name in group} for group in optimizer.param_groups]
    training.load(saved["state"])
    # An optimizer's state brings the options of the one that saved it, and these are the arm's own choice.
    for group, options in zip(optimizer.param_groups, own, strict=True):
        group.update(options)
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if "step" in state and (group.get("fused") or group.get("capturable")):
                state["step"] = torch.as_tensor(state["step"], dtype=torch.float32, device=parameter.device)
    torch.set_rng_state(saved["random"]["cpu"])
    if "cuda" in saved["random"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(saved["random"]["cuda"])


def course_trial(
    workload: Workload, spec: TrialSpec, folder: Path, device: Device, log: MetricLog
) -> dict[str, Any]:
    """Run on as evidence trials do, and ask for numbers at the iterations that timing trials ended at."""
    write_status(folder, "following the numbers")
    begin_evidence(workload)
    course, reached = {}, 0
    for iterations in spec.numbers_at:
        iterate(workload, NullClock(), iterations - reached)
        reached = iterations
        course[reached] = numbers_of(workload)
    return {"units": workload.progress(), "course": course, "reached": reached}


def quality_trial(
    workload: Workload, spec: TrialSpec, folder: Path, device: Device, log: MetricLog
) -> dict[str, Any]:
    """Train until the figure reaches the target, or for as long as that may take, with looks in between.

    As timing trials compute, and not as evidence does: what is deterministic may need other steps.

    Raises
    ------
    ConfigError
        The workload has no number of the figure's name.
    """
    write_status(folder, "training to the target")
    target = Target.of(spec.measure)
    assert target is not None
    course: dict[int, dict[str, float]] = {}
    for reached in range(target.every, target.last_look + 1, target.every):
        iterate(workload, NullClock(), target.every)
        course[reached] = {target.figure: _figure(numbers_of(workload), target.figure)}
        if ranks.agree(target.steps_in(course) is not None, spec.world):
            break
    return {"units": workload.progress(), "course": course, "reached": max(course)}


def _figure(numbers: Mapping[str, float], name: str) -> float:
    if name not in numbers:
        known = ", ".join(sorted(numbers))
        raise ConfigError(
            f"measure.target_figure={name}: the workload has no such number; choose from: {known}"
        )
    return numbers[name]


def result_trial(
    workload: Workload, spec: TrialSpec, folder: Path, device: Device, log: MetricLog
) -> dict[str, Any]:
    """Run to the end of the job, or as long as asked, and have the results written where the user wants them.

    What breaks off while it is written stays next to that folder, under another name.
    """
    assert spec.keep is not None
    target = Path(spec.keep.folder)
    write_status(folder, "running to the end")
    if ranks.leads(spec.world):
        trial_files.create(target)
    whole = spec.timed_iterations if workload.length is None else workload.length
    iterations = spec.keep.iterations or whole
    iterate(workload, NullClock(), iterations)
    partial = target.with_name(target.name + trial_files.PARTIAL)
    if ranks.leads(spec.world):
        shutil.rmtree(partial, ignore_errors=True)
        trial_files.create(partial)
    try:
        workload.keep(partial)
        if ranks.leads(spec.world):
            target.rmdir()
            partial.rename(target)
    except OSError as error:
        raise ConfigError(f"keep={target}: {error.strerror}; what was written lies in {partial}") from error
    return {"units": workload.progress(), "numbers": numbers_of(workload), "reached": iterations}


def begin_evidence(workload: Workload) -> None:
    """Compute deterministically from here on; what prepares evidence draws nothing that steps would draw."""
    # Filling every empty tensor would cost far more than determinism itself.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=True)
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        workload.prepare_evidence()


def _as_array(tensor: Any) -> np.ndarray:
    """A tensor as an array; numpy has no bfloat16, which float32 holds exactly."""
    if isinstance(tensor, torch.Tensor):
        tensor = tensor.detach().cpu()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return np.asarray(tensor)


def _some_iterations(workload: Workload, clock: Any, iterations: int) -> int:
    """At most `iterations` iterations of either shape; how many were done."""
    for number in range(iterations):
        if workload.done():
            return max(number, 1)
        workload.step(clock)
    return iterations
