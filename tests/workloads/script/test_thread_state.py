"""What a script has set of its thread is put aside for the trial, and set again after."""

from __future__ import annotations

import pytest
import torch

from perfsweep.workloads.script.thread_state import ThreadState


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_autocast_of_a_script_is_off_while_the_trial_runs(device: str) -> None:
    state = ThreadState()
    torch.set_autocast_enabled(device, True)
    try:
        state.put_aside()
        assert not torch.is_autocast_enabled(device)
        state.put_back()
        assert torch.is_autocast_enabled(device)
    finally:
        torch.set_autocast_enabled(device, False)


def test_gradients_are_on_while_the_trial_runs() -> None:
    state = ThreadState()
    with torch.no_grad():
        state.put_aside()
        assert torch.is_grad_enabled()
        state.put_back()
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_a_script_that_has_set_nothing_finds_everything_as_it_was() -> None:
    state = ThreadState()
    state.put_aside()
    state.put_back()
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
