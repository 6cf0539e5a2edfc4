"""Shared toggles mean the same everywhere: one name, one definition, whatever workload declares it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tables import latentwire, probe1d, prover, spd

from perfsweep.workloads import registry
from perfsweep.workloads import toggles as shared
from perfsweep.workloads.api import Device, Level, Parity, Toggle
from perfsweep.workloads.digits.declaration import TOGGLES as DIGITS
from perfsweep.workloads.errors import ConfigError, ContractError

TABLES: dict[str, tuple[Toggle, ...]] = {
    "digits": DIGITS,
    "probe1d": probe1d.TOGGLES,
    "spd": spd.TOGGLES,
    "prover": prover.TOGGLES,
    "latentwire": latentwire.TOGGLES,
}


@pytest.mark.parametrize(
    ("level", "word"),
    [
        (Level("plain"), "yes"),
        (Level("copies", unsupported=shared.needs_cuda), "yes"),
        (Level("compiled", unsupported=shared.needs_compiler), "yes"),
        (Level("split", unsupported=shared.needs_ranks), "yes"),
        (Level("replayed", unsupported=shared.needs_graphs), "as graphs"),
        (Level("written", unsupported=shared.needs_host_compiler), "CPU only"),
    ],
)
def test_whether_a_level_acts_on_a_gpu_follows_from_what_it_needs(level: Level, word: str) -> None:
    assert shared.on_gpu(level) == word


# Level names of each shared toggle; None where a workload names sizes, scopes or modes of its own.
SHARED: dict[str, set[object] | None] = {
    "amp": {"off", "bf16", "fp16"},
    "tf32": {"off", "on"},
    "compile": None,
    "slab_size": None,
    "micro_batch": None,
    "pin_memory": {"off", "on"},
    "num_workers": None,
    "non_blocking": {"off", "on"},
    "prefetch": {"off", "stream"},
    "optimizer": {"default", "foreach", "fused"},
    "products": {"library", "native"},
    "zero_grad": {"zero", "none"},
    "grad_checkpointing": None,
    "gc": {"each_eval", "rarely", "frozen"},
    "empty_cache": {"never", "epoch", "step"},
    "caching_allocator": {"on", "off"},
    "checkpoint": {"sync", "async"},
    "wandb_logging": {"buffered", "each", "commit_false"},
    "compile_cache": {"cold", "shared"},
    "ddp": {"off", "on"},
    "ddp_weak": {"off", "on"},
}


USED = [
    (workload, toggle) for workload, toggles in TABLES.items() for toggle in toggles if toggle.name in SHARED
]
USED_IDS = [f"{workload}-{toggle.name}" for workload, toggle in USED]

CPU = Device(type="cpu", compiler=True)
CUDA = Device(type="cuda", count=1, name="GPU", capability=(9, 0))


def factory(name: str) -> Callable[..., Toggle]:
    return getattr(shared, name)


def same_toggle(toggle: Toggle) -> Toggle:
    """The shared toggle with the level names that `toggle` has, and nothing of its own."""
    own_names = {"compile": 1, "slab_size": 0, "micro_batch": 0, "num_workers": 0, "grad_checkpointing": 0}
    values = [level.value for level in toggle.levels]
    if toggle.name in own_names:
        return factory(toggle.name)(*values[own_names[toggle.name] :])
    known = SHARED[toggle.name] or set()
    added = [value for value in values if value not in known]
    return factory(toggle.name)(*added)


@pytest.mark.parametrize("name", SHARED)
def test_every_shared_toggle_has_one_definition(name: str) -> None:
    toggle = factory(name)("scope") if name == "compile" else factory(name)()
    assert toggle.name == name
    assert toggle.doc


@pytest.mark.parametrize("name", [name for name, levels in SHARED.items() if levels])
def test_a_shared_toggle_has_the_level_names_everybody_knows(name: str) -> None:
    assert {level.value for level in factory(name)().levels} == SHARED[name]


@pytest.mark.parametrize("workload, toggle", USED, ids=USED_IDS)
def test_a_shared_level_keeps_what_makes_it_what_it_is(workload: str, toggle: Toggle) -> None:
    """A workload may ask more, set bounds, loosen a class; not act elsewhere or by other variables."""
    definition = same_toggle(toggle)
    assert toggle.doc == definition.doc
    for level in toggle.levels:
        meant = next(other for other in definition.levels if other.value == level.value)
        assert level.env == meant.env
        assert level.ranks == meant.ranks
        assert set(meant.requires) <= set(level.requires)
        assert list(Parity).index(level.parity) >= list(Parity).index(meant.parity)
        for device in (CPU, CUDA):
            assert meant.unsupported(device) is None or level.unsupported(device) is not None


def test_own_attributes_change_all_levels_but_the_baseline() -> None:
    toggle = shared.optimizer(every={"witness": "ops"})
    assert [level.witness for level in toggle.levels] == [None, "ops", "ops"]


def test_own_attributes_of_one_level_win_over_those_of_all() -> None:
    toggle = shared.amp(every={"bounds": {"loss": 1.0}}, each={"fp16": {"bounds": {"loss": 2.0}}})
    assert [dict(level.bounds) for level in toggle.levels] == [{}, {"loss": 1.0}, {"loss": 2.0}]


def test_own_attributes_reach_numbers_too() -> None:
    toggle = shared.num_workers(every={"requires": {"loader": ("dataloader",)}})
    assert toggle.level(3).requires == {"loader": ("dataloader",)}
    assert toggle.level(0).requires == {}


def test_a_workload_may_order_and_choose_levels() -> None:
    toggle = shared.wandb_logging(keep=("each", "buffered"))
    assert [level.value for level in toggle.levels] == ["each", "buffered"]


@pytest.mark.parametrize("own", [{"keep": ("off", "fp8")}, {"each": {"fp8": {"witness": "ops"}}}])
def test_a_level_that_the_shared_toggle_lacks_is_refused(own: dict) -> None:
    with pytest.raises(
        ContractError, match="shared toggle amp has no level fp8; its levels are: off, bf16, fp16"
    ):
        shared.amp(**own)


def test_the_largest_slab_may_be_stated() -> None:
    toggle = shared.slab_size("all", at_most=8)
    assert toggle.level(8).value == 8
    with pytest.raises(ConfigError, match="any integer from 1 to 8"):
        toggle.level(9)


def test_pieces_may_be_named_instead_of_counted() -> None:
    with pytest.raises(ConfigError, match=r"choose from: loop, whole$"):
        shared.micro_batch("loop", "whole", numbers=False).level(4)


def test_copies_wait_unless_memory_is_pinned() -> None:
    assert shared.non_blocking().level("on").requires == {"pin_memory": ("on",)}


@pytest.mark.parametrize(
    "level",
    [
        shared.pin_memory().level("on"),
        shared.non_blocking().level("on"),
        shared.prefetch().level("stream"),
        shared.empty_cache().level("step"),
        shared.caching_allocator().level("off"),
        shared.tf32().level("on"),
    ],
    ids=lambda level: str(level.value),
)
def test_what_acts_on_a_gpu_alone_says_so_elsewhere(level: Level) -> None:
    reason = level.unsupported(CPU)
    assert reason is not None and "cpu" in reason
    assert level.unsupported(CUDA) is None


def test_tf32_needs_the_capability_not_only_a_gpu() -> None:
    old = Device(type="cuda", count=1, name="V100", capability=(7, 0))
    reason = shared.tf32().level("on").unsupported(old)
    assert reason is not None and "8.0" in reason and "V100" in reason


@pytest.mark.parametrize("workload", sorted(registry.names()))
def test_a_gpu_of_which_nothing_is_known_can_what_one_that_has_all_can(workload: str) -> None:
    """A login node cannot ask the GPUs of its queues; what it does not know is no reason to refuse."""
    best = Device("cuda", 8, "NVIDIA H100", 80 * 2**30, (9, 0), 16, True)
    unknown = Device("cuda", 8, cores=16, compiler=True)
    levels = [level for toggle in registry.find(workload).toggles for level in toggle.levels]
    assert [level.unsupported(unknown) for level in levels] == [level.unsupported(best) for level in levels]


def test_compiling_on_a_cpu_needs_a_compiler() -> None:
    level = shared.compile("model").level("model")
    assert level.unsupported(CPU) is None
    assert level.unsupported(CUDA) is None
    assert "C++ compiler" in (level.unsupported(Device(type="cpu")) or "")


def test_environment_variables_belong_to_the_levels_that_need_them() -> None:
    assert shared.caching_allocator().level("off").env == {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    assert shared.caching_allocator().level("on").env == {}


def test_a_cold_cache_keeps_compiled_code_out_of_reach_without_a_variable_that_would_forbid_forking() -> None:
    cold, warm = shared.compile_cache().level("cold"), shared.compile_cache().level("shared")
    assert cold.compiles_anew and not warm.compiles_anew
    assert not cold.env


@pytest.mark.parametrize(
    ("levels", "dtype", "products"),
    [
        ({}, "float32", "float32"),
        ({"amp": "off", "tf32": "on"}, "float32", "tf32"),
        ({"amp": "bf16", "tf32": "on"}, "float32", "half"),
        ({"amp": "fp16"}, "float32", "half"),
        ({"tf32": "on"}, "float64", "float64"),
    ],
)
def test_amp_and_tf32_say_by_which_rate_products_are_judged(levels, dtype, products) -> None:
    assert shared.product_type(levels, dtype) == products


@pytest.mark.parametrize("shared_by", ["on", 2, 4])
def test_ranks_share_one_batch_or_have_one_each(shared_by: object) -> None:
    on = shared.ddp_weak().levels[1]
    assert on.refused is not None
    assert on.refused(None, {"ddp": shared_by, "ddp_weak": "on"}) == (
        f"ddp={shared_by} shares one batch among the ranks: choose one of the two"
    )
    assert on.refused(None, {"ddp": "off", "ddp_weak": "on"}) is None
    assert on.refused(None, {"ddp_weak": "on"}) is None


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (Device("cpu", compiler=True), None),
        (Device("cpu", compiler=False), "the kernel needs a C++ compiler and none is on PATH"),
        (Device("cuda", compiler=True), "the kernel is written for the CPU, and this is cuda"),
    ],
)
def test_a_kernel_for_the_host_needs_a_compiler_there(device: Device, reason: str | None) -> None:
    assert shared.needs_host_compiler(device) == reason


@pytest.mark.parametrize(
    "toggle",
    [toggle for _, toggle in USED if toggle.name == "wandb_logging"],
    ids=lambda toggle: toggle.levels[0].value,
)
def test_the_witness_of_logging_from_the_loop_tells_each_level_from_the_naive_one(toggle: Toggle) -> None:
    def counted(level: Level) -> dict[str, int]:
        every = level.commit_every
        return {"wandb_calls": 20 if every else 0, "wandb_commits": 20 // every if every else 0}

    naive, *levels = toggle.levels
    for level in levels:
        assert level.witness and counted(level)[level.witness] != counted(naive)[level.witness], level.value
