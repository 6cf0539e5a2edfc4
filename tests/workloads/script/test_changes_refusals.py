"""Toggles from outside that cannot act say why: the script does it itself, or has nothing to act on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from loops import ATTENTION
from script_levels import driven

from perfsweep.workloads.errors import UnsupportedHere

pytestmark = pytest.mark.workloads


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
    script = ATTENTION.replace(line, instead)
    with pytest.raises(UnsupportedHere, match=r"train\.py") as refused, driven(script, tmp_path, 1, **chosen):
        pass
    assert reason in str(refused.value)


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
