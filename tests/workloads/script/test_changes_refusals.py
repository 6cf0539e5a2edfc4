"""Toggles from outside that cannot act say why: the script does it itself, or has nothing to act on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from loops import ATTENTION, IMAGES
from script_levels import driven

from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import UnsupportedHere
from perfsweep.workloads.script.toggles import obstacles

pytestmark = pytest.mark.workloads

MODEL = "model = nn.Sequential(Block(), Block(), nn.Linear(16, 4))"


@pytest.fixture(autouse=True)
def default_dtype() -> Iterator[None]:
    yield
    torch.set_default_dtype(torch.float32)


OWN: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "model(x).flatten",
        "torch.autocast('cpu')(model)(x).float().flatten",
        {"amp": "bf16"},
        "autocasts itself",
    ),
    (MODEL, f"{MODEL}\nscaler = torch.amp.GradScaler('cpu')", {"amp": "fp16"}, "scales its losses itself"),
    (
        MODEL,
        f"torch.set_default_dtype(torch.bfloat16)\n{MODEL}",
        {"amp": "bf16"},
        "keeps its parameters in 16 bits itself",
    ),
    ("lr=1e-3", "lr=1e-3, fused=True", {"optimizer": "fused"}, "passes fused=True to its optimiser itself"),
    ("lr=1e-3", "lr=1e-3, foreach=True", {"optimizer": "foreach"}, "passes foreach=True"),
    ("torch.optim.AdamW", "torch.optim.RMSprop", {"optimizer": "fused"}, "it has: RMSprop"),
    (MODEL, f"torch.set_num_threads(2)\n{MODEL}", {"threads": 3}, "sets its number of threads itself"),
    (MODEL, f"import gc; gc.disable()\n{MODEL}", {"gc": "frozen"}, "sets Python's collector itself"),
    (
        "loss = nn",
        "from torch.nn.attention import sdpa_kernel, SDPBackend\n"
        "        with sdpa_kernel(SDPBackend.MATH): model(x)\n        loss = nn",
        {"sdpa": "math"},
        "chooses the kernels of its attention itself",
    ),
    (
        "model(x).flatten",
        "torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).flatten",
        {"grad_checkpointing": "on", "blocks": "Block"},
        "recomputes activations itself",
    ),
    ("", "", {"zero_grad": "none"}, "drops its gradients itself"),
    (
        "shuffle=True",
        "shuffle=True, num_workers=1, persistent_workers=True",
        {"persistent_workers": "on"},
        "has loaders with persistent_workers=True already",
    ),
    ("", "", {"persistent_workers": "on"}, "combine it with toggles.num_workers"),
    ("", "", {"channels_last": "on"}, "has no convolution over images"),
    (
        "",
        "",
        {"grad_checkpointing": "on"},
        "train.py repeats Block: name one to recompute with workload.blocks",
    ),
    ("", "", {"grad_checkpointing": "on", "blocks": "Layer"}, "has no module of the class Layer"),
    (
        "optimizer.zero_grad()",
        "[setattr(p, 'grad', None) for p in model.parameters()]",
        {"zero_grad": "zero"},
        "does not call",
    ),
]


@pytest.mark.parametrize(
    ("line", "instead", "chosen", "reason"), OWN, ids=[f"{one[2]} {one[3]}" for one in OWN]
)
def test_what_a_script_does_itself_or_cannot_have_is_refused_with_the_reason(
    line: str, instead: str, chosen: dict[str, Any], reason: str, tmp_path: Path, no_generated_code: None
) -> None:
    script = ATTENTION.replace(line, instead) if line else ATTENTION
    with pytest.raises(UnsupportedHere, match=r"train\.py") as refused, driven(script, tmp_path, 1, **chosen):
        pass
    assert reason in str(refused.value)


@pytest.mark.workloads
@pytest.mark.parametrize("line", ["model = torch.compile(model)", "model.compile()"])
def test_a_script_that_compiles_is_not_compiled_again(
    line: str, tmp_path: Path, no_generated_code: None
) -> None:
    script = ATTENTION.replace(MODEL, f"{MODEL}\n{line}")
    with pytest.raises(UnsupportedHere, match=r"calls torch\.compile itself"):  # noqa: SIM117
        with driven(script, tmp_path, compile="default"):
            pass


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        ({"num_workers": 2}, "makes no DataLoader"),
        ({"sdpa": "math"}, "is not seen to call scaled_dot_product_attention"),
        ({"zero_grad": "zero"}, "zeroes its gradients itself"),
    ],
    ids=str,
)
def test_a_level_with_nothing_to_act_on_is_refused(
    chosen: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedHere, match=reason), driven(IMAGES, tmp_path, 1, **chosen):
        pass


def test_a_script_with_its_own_memory_format_is_left_alone(tmp_path: Path) -> None:
    own = IMAGES.replace("optimizer =", "model.to(memory_format=torch.channels_last)\noptimizer =")
    with (
        pytest.raises(UnsupportedHere, match="in channels_last itself"),
        driven(own, tmp_path, channels_last="on"),
    ):
        pass


def test_a_script_without_modules_has_none_to_change(tmp_path: Path) -> None:
    bare = """
import torch
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.1)
while True:
    weight.square().sum().backward()
    optimizer.step()
"""
    arms: list[dict[str, Any]] = [{"amp": "bf16"}, {"compile": "default"}, {"grad_checkpointing": "on"}]
    for levels in arms:
        with (
            pytest.raises(UnsupportedHere, match="calls no module with parameters"),
            driven(bare, tmp_path, **levels),
        ):
            pass


def test_obstacles_name_what_cannot_act_and_leave_out_what_can(tmp_path: Path) -> None:
    with driven(IMAGES, tmp_path, 1) as workload:
        found = obstacles(workload.scene)
    assert found["zero_grad=zero"] == "train.py zeroes its gradients itself"
    assert found["num_workers"] == "train.py makes no DataLoader before its first iteration ends"
    assert "CUDA" in found["pin_memory"]
    assert (
        not {"amp", "compile", "compile=default", "optimizer", "channels_last", "zero_grad=none", "gc"}
        & found.keys()
    )


def test_graphs_are_refused_where_gradients_must_outlive_a_replay(tmp_path: Path) -> None:
    cuda = Device(type="cuda", count=1, capability=(9, 0))
    once = ATTENTION.replace("optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)")
    with driven(once, tmp_path, 1, device=cuda) as workload:
        assert "toggles.zero_grad=none" in obstacles(workload.scene)["compile=reduce_overhead"]
    summed = IMAGES.replace("set_to_none=False", "")
    with driven(summed, tmp_path, 1, device=cuda) as workload:
        assert "adds up gradients" in obstacles(workload.scene)["compile=reduce_overhead"]


def test_the_process_is_left_as_it_was(tmp_path: Path) -> None:
    owners = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, torch.optim.AdamW, torch.nn.utils)
    before = [dict(vars(owner)) for owner in owners]
    settings = torch.get_num_threads(), torch.backends.cuda.flash_sdp_enabled()
    with driven(
        ATTENTION, tmp_path, 2, amp="fp16", threads=3, sdpa="math", optimizer="fused", zero_grad="zero"
    ):
        assert torch.get_num_threads() == 3
    assert [dict(vars(owner)) for owner in owners] == before
    assert settings == (torch.get_num_threads(), torch.backends.cuda.flash_sdp_enabled())
