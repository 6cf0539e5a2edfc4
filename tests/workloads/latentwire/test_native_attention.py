"""What loading the compiled kernel must not do to the rest of the process."""

from __future__ import annotations

import pytest
import torch

from workloads.errors import UnsupportedHere
from workloads.latentwire.native_attention import library


def test_loading_the_kernel_keeps_denormal_numbers():
    try:
        library()
    except UnsupportedHere as reason:
        pytest.skip(str(reason))
    assert (torch.full((64,), 1e-40) * 1).min() > 0
    assert 5e-324 * 1.0 > 0
