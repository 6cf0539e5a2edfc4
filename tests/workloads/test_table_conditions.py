"""What in the four tables depends on device, configuration or levels, and how far levels move results."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from tables import latentwire, probe1d, prover, spd

from perfsweep.workloads.api import Device, Levels, LevelValue, Parity, Toggle

TABLES: dict[str, ModuleType] = {"probe1d": probe1d, "spd": spd, "prover": prover, "latentwire": latentwire}

CPU = Device(type="cpu", cores=2, compiler=True)
GPU = Device(type="cuda", count=1, name="H200", capability=(9, 0), cores=16)
FOUR_GPUS = Device(type="cuda", count=4, name="H200", capability=(9, 0), cores=64)


def toggle_of(table: str, name: str) -> Toggle:
    return next(toggle for toggle in TABLES[table].TOGGLES if toggle.name == name)


def baseline(table: str, **changed: LevelValue) -> Levels:
    return {**{toggle.name: toggle.levels[0].value for toggle in TABLES[table].TOGGLES}, **changed}


WHERE: dict[str, Device] = {
    "a host without a compiler": Device(cores=2),
    "a host with one": CPU,
    "any GPU": Device(type="cuda", count=1, name="V100", capability=(7, 0), cores=8, compiler=True),
    "a GPU with bf16": Device(type="cuda", count=1, name="A100", capability=(8, 0), cores=8, compiler=True),
    "several": dataclasses.replace(FOUR_GPUS, compiler=True),
}
"""Devices by what a level may need; all that need no GPU act on hosts too."""
GPUS = ("any GPU", "a GPU with bf16", "several")
HOSTS = ("a host without a compiler", "a host with one")
COMPILED, NATIVE = ("a host with one", *GPUS), ("a host with one",)
ACTS: dict[str, dict[tuple[str, ...], str]] = {
    "probe1d": {COMPILED: "compile=on fused_kernel=on", GPUS: "caching_allocator=off"},
    "spd": {
        COMPILED: "compile=ci_fns compile=target compile=losses compile=breaks compile=masked_pass"
        " compile=full",
        NATIVE: "draws=native products=native gradients=native",
        HOSTS: "routed_rows=gathered",
        GPUS: "pin_memory=on non_blocking=on prefetch=stream profiler=events cuda_graph=on"
        " loader=gpu_resident",
        GPUS[1:]: "tf32=on",
    },
    "prover": {
        COMPILED: "compile=default compile=max_autotune fused_trunk=on",
        NATIVE: "expand_kernel=native select_kernel=native",
        GPUS: "compile=reduce_overhead expand_kernel=triton",
        GPUS[1:]: "tf32=on",
    },
    "latentwire": {
        COMPILED: "compile=block",
        NATIVE: "encoder_attn=native products=native",
        GPUS: "pin_memory=on non_blocking=on prefetch=stream attn=flash amp=fp16"
        " compile=reduce_overhead empty_cache=epoch empty_cache=step",
        GPUS[2:]: "parallel=layer_split",
        (*HOSTS, GPUS[2]): "parallel=ddp parallel=model_per_gpu parallel=fsdp",
    },
}
"""Levels that do not act everywhere, by where they do."""


@pytest.mark.parametrize("table", TABLES)
def test_a_level_acts_where_what_it_needs_is_and_nowhere_else(table: str) -> None:
    found = {
        f"{toggle.name}={level.value}": tuple(
            name for name, device in WHERE.items() if level.unsupported(device) is None
        )
        for toggle in TABLES[table].TOGGLES
        for level in toggle.levels
    }
    expected = {level: where for where, levels in ACTS[table].items() for level in levels.split()}
    assert {level: where for level, where in found.items() if where != tuple(WHERE)} == expected


@dataclass(frozen=True)
class Conditional:
    """A class that depends on the configuration, or on other levels."""

    table: str
    toggle: str
    level: LevelValue
    config: Any
    levels: dict[str, LevelValue]
    expected: Parity


FROZEN = spd.Config(frozen_draws=True)
CONDITIONALS = [
    Conditional("spd", "micro_batch", "whole", spd.Config(), {}, Parity.STOCHASTIC),
    Conditional("spd", "micro_batch", "whole", FROZEN, {}, Parity.EXACT),
    Conditional(
        "spd", "micro_batch", "whole", spd.Config(frozen_draws=True, beta=0.1), {}, Parity.STOCHASTIC
    ),
    Conditional("spd", "stack_modules", "stacked", spd.Config(), {}, Parity.EXACT),
    Conditional("spd", "stack_modules", "stacked", spd.Config(canonical_draws=False), {}, Parity.STOCHASTIC),
    Conditional("spd", "cuda_graph", "on", spd.Config(), {}, Parity.STOCHASTIC),
    Conditional("spd", "cuda_graph", "on", FROZEN, {}, Parity.EXACT),
    Conditional("latentwire", "attn", "sdpa", latentwire.Config(), {}, Parity.EXACT),
    Conditional("latentwire", "attn", "sdpa", latentwire.Config(), {"lm_dtype": "bf16"}, Parity.TOLERANCE),
    Conditional("latentwire", "attn", "sdpa", latentwire.Config(), {"amp": "fp16"}, Parity.TOLERANCE),
    Conditional("latentwire", "attn", "flash", latentwire.Config(), {"amp": "bf16"}, Parity.TOLERANCE),
]


@pytest.mark.parametrize("case", CONDITIONALS, ids=lambda case: f"{case.table}-{case.toggle}-{case.expected}")
def test_a_class_follows_the_configuration_and_the_other_levels(case: Conditional) -> None:
    level = toggle_of(case.table, case.toggle).level(case.level)
    levels = baseline(case.table, **{case.toggle: case.level}, **case.levels)
    assert level.parity_with(case.config, levels) is case.expected


@pytest.mark.parametrize("device, start", [(CPU, "single"), (GPU, "single"), (FOUR_GPUS, "layer_split")])
def test_latentwire_splits_layers_where_upstream_did(device: Device, start: str) -> None:
    assert toggle_of("latentwire", "parallel").baseline({}, device) == start


def test_screening_must_not_change_what_plain_rounding_may() -> None:
    screened = set(toggle_of("prover", "screen16").level("on").bounds)
    rounded = set(toggle_of("prover", "tf32").level("on").bounds)
    assert screened == {"log_prob"}
    assert {"success", "depth", "actions", "rank"} <= rounded
