"""Calls of modules, with something around them."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from perfsweep.workloads.script.changes.change import Call, wrap


class Plain(nn.Module):
    def forward(self, x: float) -> float:
        return x + 1


class OwnCall(Plain):
    def __call__(self, x: float) -> float:  # as some libraries have it: it does not look for compiled code
        return self.forward(x)


def twice(call: Call) -> Call:
    return lambda *args, **kwargs: 2 * call(*args, **kwargs)


@pytest.mark.parametrize("kind", [Plain, OwnCall])
def test_every_call_goes_through_all_that_is_put_around_it(kind: type[nn.Module]) -> None:
    module, other = kind(), kind()
    wrap(module, twice)
    assert (module(3), other(3)) == (8, 4)
    wrap(module, twice)
    assert module(x=3) == 16
    kept: Any = kind.forward
    assert kept(module, 3) == 4
