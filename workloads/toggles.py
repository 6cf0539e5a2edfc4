"""Toggles that several workloads share: one name, one meaning, one definition.

A workload calls the function, states what is its own (scopes, bounds, witnesses, the report's section) and
may start from another baseline where the naive path it reproduces does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from perfsweep.workloads.api import Device, Level, Levels, LevelValue, Numbers, Parity, Toggle
from perfsweep.workloads.errors import ContractError

LevelChanges = Mapping[LevelValue, Mapping[str, Any]]
"""Attributes that a workload sets on single levels of a shared toggle."""


def needs_cuda(device: Device) -> str | None:
    """Reason why a level that only acts on a CUDA device cannot act here."""
    return None if device.type == "cuda" else f"acts on CUDA devices only, and this is {device.type}"


def needs_compiler(device: Device) -> str | None:
    """Reason why torch.compile cannot generate code here."""
    if device.type == "cuda" or device.compiler:
        return None
    return "torch.compile needs a C++ compiler on CPU and none is on PATH"


def needs_host_compiler(device: Device) -> str | None:
    """Reason why a hand-written kernel for the CPU cannot run here."""
    if device.type != "cpu":
        return f"the kernel is written for the CPU, and this is {device.type}"
    return None if device.compiler else "the kernel needs a C++ compiler and none is on PATH"


def needs_graphs(device: Device) -> str | None:
    """Reason why CUDA graphs cannot be replayed: ``mode="reduce-overhead"`` silently runs the default."""
    return None if device.type == "cuda" else f"replays CUDA graphs, and {device.type} has none"


GPU = Device("cuda", count=8, compiler=True)
"""A GPU of which no more is known, and others next to it."""


def on_gpu(level: Level) -> str:
    """Whether a level acts on a GPU: ``yes``, ``as graphs`` that are replayed there, or ``CPU only``."""
    if level.unsupported is needs_graphs:
        return "as graphs"
    return "CPU only" if level.unsupported(GPU) else "yes"


def needs_tensor_cores(device: Device) -> str | None:
    """Reason why TF32 products cannot act here: CUDA capability 8.0 or newer is needed."""
    if reason := needs_cuda(device):
        return reason
    if device.below(8, 0):
        return f"needs CUDA capability 8.0, and {device.name} has {device.capability}"
    return None


def needs_ranks(device: Device) -> str | None:
    """Reason why several processes cannot share a training: each needs a GPU of its own, or none has one."""
    return None if device.type != "cuda" or device.count > 1 else "needs two GPUs, or CPU ranks"


def product_type(levels: Levels, dtype: str = "float32") -> str:
    """What `amp` and `tf32` make of products of `dtype`: the type by which `peaks` lists rates."""
    if levels.get("amp", "off") != "off":
        return "half"
    return "tf32" if dtype == "float32" and levels.get("tf32") == "on" else dtype


def _toggle(
    name: str,
    levels: Iterable[Level],
    doc: str,
    *,
    source: str = "",
    keep: tuple[LevelValue, ...] | None = None,
    every: Mapping[str, Any] | None = None,
    each: LevelChanges | None = None,
    numbers: Numbers | None = None,
) -> Toggle:
    """Build a shared toggle.

    `keep` chooses and orders the levels, `every` changes all levels but the baseline, `each` single ones.

    Raises
    ------
    ContractError
        `keep` or `each` names a level that the shared toggle does not have.
    """
    by_value = {level.value: level for level in levels}
    if unknown := [value for value in (*(keep or ()), *(each or ())) if value not in by_value]:
        raise ContractError(
            f"shared toggle {name} has no level {unknown[0]}; its levels are: {', '.join(map(str, by_value))}"
        )
    chosen = [by_value[value] for value in (keep or tuple(by_value))]
    changed = [dataclasses.replace(level, **(every or {})) if i else level for i, level in enumerate(chosen)]
    changed = [dataclasses.replace(level, **(each or {}).get(level.value, {})) for level in changed]
    if numbers and every:
        numbers = dataclasses.replace(numbers, like=dataclasses.replace(numbers.like, **every))
    return Toggle(name, tuple(changed), doc, source, numbers)


def amp(**own: Any) -> Toggle:
    """Autocast of the forward pass; fp16 with loss scaling."""
    return _toggle(
        "amp",
        [
            Level("off"),
            Level(
                "bf16",
                parity=Parity.TOLERANCE,
                in_code="the forward pass in `with torch.autocast(device.type, torch.bfloat16):`",
            ),
            Level(
                "fp16",
                parity=Parity.TOLERANCE,
                in_code="the forward pass in `with torch.autocast(device.type, torch.float16):`, backward and"
                " step through `torch.amp.GradScaler`",
            ),
        ],
        "autocast the forward pass to a 16-bit type",
        **own,
    )


def tf32(**own: Any) -> Toggle:
    """TF32 products in float32 matrix multiplications."""
    on = Level(
        "on",
        parity=Parity.TOLERANCE,
        unsupported=needs_tensor_cores,
        in_code='`torch.set_float32_matmul_precision("high")` at the start',
    )
    return _toggle("tf32", [Level("off"), on], "let float32 products run in TF32", **own)


def compile(*scopes: str, **own: Any) -> Toggle:
    """torch.compile over the scopes or modes a workload declares."""
    levels = [Level(scope, unsupported=needs_compiler, witness="compiled_graphs") for scope in scopes]
    return _toggle("compile", [Level("off"), *levels], "torch.compile", **own)


def compile_cache(**own: Any) -> Toggle:
    """Inductor's on-disk cache: empty in every trial, or shared by the trials of a sweep."""
    cold = Level("cold", compiles_anew=True)
    return _toggle(
        "compile_cache", [cold, Level("shared", witness="cache_hits")], "keep compiled code on disk", **own
    )


def slab_size(*sizes: LevelValue, at_most: float | None = None, **own: Any) -> Toggle:
    """How many independent items are processed together; any positive number is a level."""
    numbers = Numbers(1, at_most)
    return _toggle(
        "slab_size", [Level(size) for size in sizes], "items processed together", numbers=numbers, **own
    )


def micro_batch(*sizes: LevelValue, numbers: bool = True, **own: Any) -> Toggle:
    """The pieces in which one iteration's batch is processed, gradients summed over pieces."""
    like = Level(0, in_code="`loss.backward()` for each {value} rows of a batch, then one `optimizer.step()`")
    whole = Level("all", in_code="one `loss.backward()` for the whole batch")
    return _toggle(
        "micro_batch",
        [whole if size == "all" else dataclasses.replace(like, value=size) for size in sizes],
        "process one iteration's batch in pieces of this many rows",
        numbers=Numbers(1, like=like) if numbers else None,
        **own,
    )


def pin_memory(**own: Any) -> Toggle:
    """Page-locked host batches."""
    return _toggle(
        "pin_memory",
        [Level("off"), Level("on", unsupported=needs_cuda, in_code="`DataLoader(..., pin_memory=True)`")],
        "keep host batches in pinned memory",
        **own,
    )


def non_blocking(**own: Any) -> Toggle:
    """Host-to-device copies that return at once; they only do so from pinned memory."""
    on = Level(
        "on",
        requires={"pin_memory": ("on",)},
        unsupported=needs_cuda,
        in_code="`batch.to(device, non_blocking=True)`",
    )
    return _toggle("non_blocking", [Level("off"), on], "copy to the device without waiting", **own)


def prefetch(**own: Any) -> Toggle:
    """The next batch travels on a stream of its own while this one is computed."""
    return _toggle(
        "prefetch",
        [
            Level("off"),
            Level(
                "stream",
                unsupported=needs_cuda,
                in_code="copy the next batch in `with torch.cuda.stream(side):` during this step",
            ),
        ],
        "copy the next batch on a side stream",
        **own,
    )


def num_workers(*counts: int, **own: Any) -> Toggle:
    """Loader processes."""
    like = Level(0, in_code="`DataLoader(..., num_workers={value})`")
    levels = [dataclasses.replace(like, value=count) for count in counts or (0, 2, 4)]
    doc = "load batches in this many worker processes"
    return _toggle("num_workers", levels, doc, numbers=Numbers(0, 64, like), **own)


def data(**own: Any) -> Toggle:
    """Batches as the loader gives them, or its first ones again and again, from memory.

    No way to train: it shows what a loader that never waits would buy.
    """
    cached = Level("cached", witness="kept_batches")
    doc = "give the first batches again from memory, as a loader that never waits"
    toggle = _toggle("data", [Level("loaded"), cached], doc, **own)
    return dataclasses.replace(toggle, ideal_loader=True)


def products(**own: Any) -> Toggle:
    """Products of matrices by PyTorch's library, or by kernels of ours for the processor's widest vectors."""
    native = Level("native", unsupported=needs_host_compiler, witness="native_products")
    return _toggle(
        "products", [Level("library"), native], "multiply matrices by kernels for the widest vectors", **own
    )


def optimizer(**own: Any) -> Toggle:
    """Implementation of the optimiser's update."""
    return _toggle(
        "optimizer",
        [
            Level("default"),
            Level("foreach", in_code="`foreach=True` for the optimizer"),
            Level("fused", in_code="`fused=True` for the optimizer"),
        ],
        "update parameters one by one, as lists, or in one kernel",
        **own,
    )


def zero_grad(**own: Any) -> Toggle:
    """Gradients are overwritten with zeros, or dropped."""
    none = Level("none", in_code="`optimizer.zero_grad(set_to_none=True)`")
    doc = "drop gradients instead of zeroing them"
    return _toggle("zero_grad", [Level("zero"), none], doc, **own)


def grad_checkpointing(*levels: str, **own: Any) -> Toggle:
    """Activations are recomputed in the backward pass instead of kept."""
    said = {"on": "`torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)` for each block"}
    names = levels or ("off", "on")
    return _toggle(
        "grad_checkpointing",
        [Level(name, in_code=said.get(name, "")) for name in names],
        "recompute activations in the backward pass",
        **own,
    )


def gc(*more: str, **own: Any) -> Toggle:
    """When Python's collector runs: at each evaluation, at every tenth, or never once survivors are frozen.

    `more` are occasions that only this workload has.
    """
    said = {
        "rarely": "`gc.collect()` at every tenth evaluation only",
        "frozen": "`gc.collect(); gc.freeze()` after the model is built, no `gc.collect()` in the loop",
        "off": "`gc.disable()` before the loop",
    }
    names = ("each_eval", "rarely", "frozen", *more)
    levels = [Level(name, in_code=said.get(name, "")) for name in names]
    toggle = _toggle("gc", levels, "collect garbage less often", **own)
    return dataclasses.replace(toggle, owns_collector=True)


def empty_cache(**own: Any) -> Toggle:
    """When the caching allocator gives its free blocks back."""
    levels = [Level("never"), Level("epoch", unsupported=needs_cuda), Level("step", unsupported=needs_cuda)]
    return _toggle("empty_cache", levels, "return cached device memory to the driver", **own)


def caching_allocator(**own: Any) -> Toggle:
    """PyTorch's caching allocator; off shows each allocation in a profile and is slower by design."""
    off = Level("off", env={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, unsupported=needs_cuda)
    return _toggle("caching_allocator", [Level("on"), off], "allocate device memory without the cache", **own)


def checkpoint(**own: Any) -> Toggle:
    """Saving the training state in the loop, or handing a copy to a writer."""
    later = Level("async", in_code="`torch.save` of a copy of the state, in a thread")
    return _toggle("checkpoint", [Level("sync"), later], "write checkpoints while the loop goes on", **own)


def wandb_logging(**own: Any) -> Toggle:
    """Metrics kept in memory until after the measurement, or sent to W&B from inside the loop."""
    levels = [
        Level("buffered"),
        Level("each", witness="wandb_calls", commit_every=1),
        # As a report advises: of fifty rows with the same keys W&B keeps the last.
        Level("commit_false", witness="wandb_calls", commit_every=50),
    ]
    return _toggle("wandb_logging", levels, "send metrics to W&B from inside the loop", **own)


def ddp(**own: Any) -> Toggle:
    """Several processes with a share of every batch each, on a GPU each where there are GPUs.

    A number is that of the ranks.
    """
    return _replicated("ddp", Level("on"), "share each batch among ranks that average gradients", own)


def ddp_weak(**own: Any) -> Toggle:
    """Several processes with a whole batch each, so that an iteration trains on as many batches as ranks.

    Updates are of more rows then: results are others by intent. A number is that of the ranks.
    """
    on = Level("on", parity=Parity.STOCHASTIC, refused=_ddp_shares_already)
    return _replicated("ddp_weak", on, "a whole batch for each of the ranks that average gradients", own)


def _replicated(name: str, like: Level, doc: str, own: Mapping[str, Any]) -> Toggle:
    """Build a toggle of ranks that average gradients; `like` has what its levels do not share with others."""
    on = dataclasses.replace(like, ranks=2, per_gpu=True, unsupported=needs_ranks, witness="ranks")
    numbers = Numbers(2, like=dataclasses.replace(on, value=0, per_gpu=False), ranks=True)
    return _toggle(name, [Level("off"), on], doc, numbers=numbers, **own)


def _ddp_shares_already(config: Any, levels: Levels) -> str | None:
    shared = levels.get("ddp", "off")
    return (
        None if shared == "off" else f"ddp={shared} shares one batch among the ranks: choose one of the two"
    )
