"""Sixteen bits from outside: outputs in float32, and fp16's losses scaled behind the script's back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from loops import ADVERSARIES, ATTENTION, IMAGES
from script_levels import driven, evidence, verdict

from perfsweep.pipelines.parity.results import ParityVerdict
from perfsweep.workloads.api import NullClock
from perfsweep.workloads.errors import UnsupportedHere
from perfsweep.workloads.script.changes import autocasting


def test_nested_outputs_are_float32_again(tmp_path: Path) -> None:
    nested = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x)
        return {"parts": (y, [y.argmax(1)]), "inside": y.dtype}

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    out = model(torch.randn(3, 4))
    whole, (index,) = out["parts"]
    assert whole.dtype is torch.float32 and index.dtype is torch.int64
    inside = out["inside"]
    whole.sum().backward()
    optimizer.step()
"""
    with driven(nested, tmp_path, 1, amp="bf16") as workload:
        import __main__

        assert __main__.inside is torch.bfloat16
        workload.step(NullClock())


@pytest.mark.workloads
@pytest.mark.parametrize("script", [IMAGES, ADVERSARIES], ids=["accumulated", "two optimisers"])
def test_scaled_losses_leave_results(script: str, tmp_path: Path) -> None:
    found = verdict(evidence(script, tmp_path), evidence(script, tmp_path, amp="fp16"), amp="fp16")
    assert found.verdict is ParityVerdict.WITHIN_TOLERANCE, found.reason


def test_clipping_sees_unscaled_gradients(tmp_path: Path) -> None:
    told = ATTENTION.replace("        clip_grad_norm_(model", "        norm = clip_grad_norm_(model")
    norms = []
    for level in ("off", "fp16"):
        with driven(told, tmp_path, 1, amp=level):
            import __main__

            norms.append(float(__main__.norm))
    assert norms[1] == pytest.approx(norms[0], rel=0.05)


def test_an_update_whose_gradients_overflow_is_left_out_and_ends_an_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autocasting, "FIRST_SCALE", 2.0**40)
    with driven(ATTENTION, tmp_path, amp="fp16") as workload:
        before = workload.evidence()
        workload.step(NullClock())
        after = workload.evidence()
        assert workload.counters()["skipped_updates"] == 1
    assert torch.equal(before.tensors["parameters"], after.tensors["parameters"])
    assert after.numbers["iterations"] == before.numbers["iterations"] + 1
    assert after.tensors["losses"].isfinite().all()


def test_the_scale_falls_until_updates_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autocasting, "FIRST_SCALE", 2.0**24)
    with driven(ATTENTION, tmp_path, 20, amp="fp16") as workload:
        counters = workload.counters()
    assert 0 < counters["skipped_updates"] < 15
    assert counters["optimizer_steps"] + counters["skipped_updates"] == counters["iterations"]


def test_closures_refuse_scaled_losses_and_not_bf16(tmp_path: Path) -> None:
    closing = """
import torch
from torch import nn
model = nn.Linear(4, 1)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
def closure():
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4)).square().mean()
    loss.backward()
    return loss
while True:
    optimizer.step(closure)
"""
    with pytest.raises(UnsupportedHere, match="closure that LBFGS calls"):
        evidence(closing, tmp_path, amp="fp16")
    evidence(closing, tmp_path, amp="bf16")
