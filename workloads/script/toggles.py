"""What can be switched in a script from outside, and what the switches may change."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Check, Level, Levels, LevelValue, Numbers, Parity, Toggle
from perfsweep.workloads.errors import UnsupportedHere
from perfsweep.workloads.script.call_sites import note_forward
from perfsweep.workloads.script.changes import copies, loaders, modules, settings, updates
from perfsweep.workloads.script.changes.options import COUNTED as COUNTED_OF_LOADERS
from perfsweep.workloads.script.changes.scene import Change, Scene

CHECKS = (
    Check("losses"),  # one for each iteration: the sum of what backward was called on
    Check("first_gradient"),  # of all optimisers in the first iteration after set-up, before it is applied
    Check("parameters"),  # all that the optimisers update, at the end
)

# An update like Adam's divides rounding by rounding where a gradient is nought, as that of an attention's key
# bias: parameters drift by up to the learning rate in each iteration, and mean little at the end of a run. So
# the first gradient, at equal parameters, is judged strictly, the losses loosely, the parameters hardly.
# Measured over 24 iterations of an attention (A), a residual convolution net (C) and a GAN (G), where code is
# compiled, or updates or attention take another kernel: first gradients 4e-7 (A, G), losses 5e-8, parameters
# 1e-5 (A).
DRIFT = {"losses": 1e-3, "parameters": 2e-2}
# Convolutions over channels_last, which compiled code chooses too, miss the float64 gradient of C by 9e-4,
# others by 8e-7; so does a loop by hand.
LAYOUT = {"first_gradient": 5e-3, **DRIFT}
# bfloat16 rounds to 8 significant bits. Measured: first gradients 0.004 (A), 0.03 (C), 0.02 (G), losses 1e-4,
# parameters 0.009; fp16 at a third of that. A relative distance below 0.1 implies a cosine above 0.99.
SIXTEEN_BITS = {"first_gradient": 1e-1, "losses": 2e-2, "parameters": 5e-2}
# TF32 rounds to 11 significant bits, as fp16 does.
TF32 = {"first_gradient": 3e-2, "losses": 5e-3, "parameters": 3e-2}

SEED_MARGIN = 0.05
"""By which the mean loss may move where random draws come from other generators."""

DEFAULT = Level("default")
"""As the script has it, where that is not simply off."""

AHEAD = Level(0, in_code="`DataLoader(..., prefetch_factor={value})`")
THREADS = Level(0, in_code="`torch.set_num_threads({value})` at the start")
ATTENTION = "the forward pass in `with torch.nn.attention.sdpa_kernel(SDPBackend.{}):`"


def _from_default(toggle: Toggle, **every: Any) -> Toggle:
    """`toggle` with the script's own choice as its baseline."""
    numbers = toggle.numbers and dataclasses.replace(
        toggle.numbers, like=dataclasses.replace(toggle.numbers.like, **every)
    )
    levels = (dataclasses.replace(level, **every) for level in toggle.levels)
    return dataclasses.replace(toggle, levels=(DEFAULT, *levels), numbers=numbers)


def _compile() -> Toggle:
    each: dict[str, dict[str, Any]] = {
        "default": {"in_code": "`model = torch.compile(model)`"},
        "reduce_overhead": {
            "unsupported": shared.needs_graphs,
            "in_code": '`model = torch.compile(model, mode="reduce-overhead")`',
        },
        "max_autotune": {"autotunes": True, "in_code": '`model = torch.compile(model, mode="max-autotune")`'},
    }
    return shared.compile("default", "reduce_overhead", "max_autotune", every={"bounds": LAYOUT}, each=each)


def _switch(name: str, doc: str, **on: Any) -> Toggle:
    return Toggle(name, (Level("off"), Level("on", **on)), doc)


TOGGLES: tuple[Toggle, ...] = (
    shared.amp(every={"witness": "low_precision_ops", "bounds": SIXTEEN_BITS}),
    shared.tf32(every={"witness": "tf32_iterations", "bounds": TF32}),
    _compile(),
    shared.optimizer(every={"witness": "ops", "bounds": DRIFT}),
    _switch(
        "cudnn_benchmark",
        "let cuDNN time its algorithms",
        witness="benchmarked_iterations",
        in_code="`torch.backends.cudnn.benchmark = True` at the start",
        bounds=DRIFT,
        unsupported=shared.needs_cuda,
    ),
    _switch(
        "channels_last",
        "lay out images and convolutions channel by channel",
        witness="channels_last_inputs",
        in_code="`.to(memory_format=torch.channels_last)` for the model and for each batch of images",
        bounds=LAYOUT,
    ),
    _from_default(
        Toggle(
            "sdpa",
            (
                Level("flash", in_code=ATTENTION.format("FLASH_ATTENTION")),
                Level(
                    "efficient",
                    unsupported=shared.needs_cuda,
                    in_code=ATTENTION.format("EFFICIENT_ATTENTION"),
                ),
                Level("math", in_code=ATTENTION.format("MATH")),
                Level("cudnn", unsupported=shared.needs_cuda, in_code=ATTENTION.format("CUDNN_ATTENTION")),
            ),
            "kernel of scaled_dot_product_attention",
        ),
        witness="attention_kernels",
        bounds=DRIFT,
    ),
    # Processes of a loader draw augmentation from generators of their own: results then agree over seeds.
    _from_default(
        shared.num_workers(0, 2, 4),
        witness="loader_workers",
        parity=Parity.STOCHASTIC,
        bounds={"losses": SEED_MARGIN},
    ),
    shared.pin_memory(every={"witness": "pinned_batches"}),
    _switch(
        "persistent_workers",
        "keep loader processes from epoch to epoch",
        witness="persistent_batches",
        in_code="`DataLoader(..., persistent_workers=True)`",
    ),
    _from_default(
        Toggle(
            "prefetch_factor",
            (dataclasses.replace(AHEAD, value=4),),
            "batches that each loader process works ahead",
            numbers=Numbers(1, 64, AHEAD),
        ),
        witness="batches_ahead",
    ),
    shared.non_blocking(every={"witness": "unwaited_copies", "requires": {}}),
    _from_default(shared.zero_grad(), witness="ops"),
    shared.grad_checkpointing(every={"witness": "saved_bytes"}),
    _from_default(
        Toggle(
            "threads",
            (dataclasses.replace(THREADS, value=1),),
            "threads of an operation on CPU",
            numbers=Numbers(1, 256, THREADS),
        ),
        witness="threads",
        bounds=DRIFT,
    ),
)

COLLECTOR = shared.gc(
    "automatic",
    "off",
    keep=("automatic", "frozen", "off"),
    each={"frozen": {"witness": "frozen_iterations"}, "off": {"witness": "uncollected_iterations"}},
)
"""Only in sweeps that name it: elsewhere a full collection in one region of many would be the arm's time."""

DATA = shared.data()
"""Only together with `measure.stall`, or in sweeps that name it."""

CHOICES = (*TOGGLES, COLLECTOR)
"""What a user may choose for a script."""

EVERY = (*CHOICES, DATA)

_BASELINES: Mapping[str, LevelValue] = {toggle.name: toggle.levels[0].value for toggle in EVERY}

# In the order in which they are put around a call: the first ends up inside.
CHANGES: Mapping[str, Change] = {
    "grad_checkpointing": Change(modules.recompute_obstacle, modules.begin_recompute),
    "compile": Change(
        modules.compile_obstacle, modules.begin_compile, late_obstacle=modules.late_compile_obstacle
    ),
    "channels_last": Change(modules.layout_obstacle, modules.begin_layout),
    "amp": Change(modules.amp_obstacle, modules.begin_amp, modules.prepare_amp),
    "optimizer": Change(updates.obstacle, prepare=updates.prepare),
    "zero_grad": Change(
        updates.reset_obstacle, updates.begin_reset, late_obstacle=updates.late_reset_obstacle
    ),
    "sdpa": Change(settings.attention_obstacle, settings.begin_attention),
    "non_blocking": Change(copies.obstacle, copies.begin),
    **{
        name: Change(
            partial(loaders.obstacle, name),
            prepare=partial(loaders.give, name),
            late_obstacle=loaders.late_obstacle,
        )
        for name in ("num_workers", "pin_memory", "prefetch_factor")
    },
    "persistent_workers": Change(
        partial(loaders.obstacle, "persistent_workers"),
        prepare=loaders.keep_workers,
        late_obstacle=loaders.late_obstacle,
    ),
    "data": Change(loaders.keep_obstacle, prepare=loaders.keep_batches),
    "tf32": Change(partial(settings.own_setting, "tf32"), settings.begin_tf32),
    "cudnn_benchmark": Change(settings.benchmark_obstacle, settings.begin_benchmark),
    "threads": Change(settings.threads_obstacle, settings.begin_threads),
    "gc": Change(partial(settings.own_setting, "gc"), settings.begin_collector),
}
"""How each toggle acts."""


def apply(levels: Levels, scene: Scene) -> None:
    """Make the changes that an arm's levels are, now or at the first mark.

    `levels` are those of `EVERY`, without toggles of the script's own.

    Raises
    ------
    UnsupportedHere
        Where a level can act on nothing that was seen of the script: at the first mark, or one iteration
        later where it takes so long to know.
    """
    scene.levels = {
        name: levels[name] for name in CHANGES if levels.get(name, _BASELINES[name]) != _BASELINES[name]
    }
    scene.own.watch(scene.undo, scene.sites)
    scene.loaders.watch(scene.watched, scene.undo, scene.sites)
    scene.updates.watch(scene.undo, scene.sites)
    scene.watched.called.append(partial(note_forward, scene.sites))
    scene.attention.watch(scene.watched)
    copies.watch(scene)
    for name, level in scene.levels.items():
        CHANGES[name].prepare(scene, level)
    scene.at_first_mark.append(partial(_begin, scene))


def _obstacle_to(scene: Scene, name: str, level: LevelValue, late: bool = False) -> str | None:
    change = CHANGES[name]
    reason = (change.late_obstacle if late else change.obstacle)(scene, level)
    return f"{scene.script} {reason}" if reason else None


def _begin(scene: Scene) -> None:
    scene.own.first_mark()
    scene.attention.first_mark()
    _refuse(scene)
    for name, level in scene.levels.items():
        CHANGES[name].begin(scene, level)

    def end_of_first_iteration() -> None:
        scene.watched.end_of_iteration.remove(end_of_first_iteration)
        scene.own.end()
        scene.attention.end()
        _refuse(scene, late=True)

    scene.watched.end_of_iteration.append(end_of_first_iteration)


def _refuse(scene: Scene, late: bool = False) -> None:
    for name, level in scene.levels.items():
        if reason := _obstacle_to(scene, name, level, late):
            raise UnsupportedHere(f"toggles.{name}={level}: {reason}")


def obstacles(scene: Scene) -> dict[str, str]:
    """Why levels cannot act on the script, as far as it was seen; all is known one iteration after set-up.

    Returns
    -------
    reasons by toggle where no level can act, else by ``toggle=level``; what can act is not in it
    """
    reasons: dict[str, str] = {}
    for toggle in CHOICES:
        of_levels = {level.value: _obstacle(scene, toggle.name, level) for level in toggle.levels[1:]}
        shown = {value: reason for value, reason in of_levels.items() if reason}
        if len(shown) == len(of_levels) and len(set(shown.values())) == 1:
            reasons[toggle.name] = next(iter(shown.values()))
        else:
            reasons |= {f"{toggle.name}={value}": reason for value, reason in shown.items()}
    return reasons


def _obstacle(scene: Scene, name: str, level: Level) -> str | None:
    if reason := level.unsupported(scene.device) or _obstacle_to(scene, name, level.value):
        return reason
    return _obstacle_to(scene, name, level.value, late=True) if scene.own.complete else None


def counters(scene: Scene) -> dict[str, float]:
    """What shows that levels act, in addition to what is counted as it happens."""
    counted = dict.fromkeys(COUNTED, 0.0) | {
        name: float(count) for name, count in scene.watched.counts.items()
    }
    kernels = scene.attention.code(compiled="compile" in scene.levels)
    return {**counted, **settings.counts(scene), "attention_kernels": float(kernels)}


COUNTED = (
    *COUNTED_OF_LOADERS,
    "channels_last_inputs",
    "unwaited_copies",
    "skipped_updates",
    "worker_batches",
    "kept_batches",
)
"""Counts that are there in every arm, also where nothing was counted."""
