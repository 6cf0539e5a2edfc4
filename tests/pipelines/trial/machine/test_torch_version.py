"""What is read from torch's own file is what torch says when it is imported."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from perfsweep.pipelines.trial.machine.installed import torch_build
from perfsweep.workloads.errors import ConfigError


@pytest.fixture(autouse=True)
def fresh():
    torch_build.cache_clear()
    yield
    torch_build.cache_clear()


def test_it_says_what_torch_says():
    assert torch_build().version == str(torch.__version__)
    assert torch_build().cuda == torch.version.cuda


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install torch"):
        torch_build()
