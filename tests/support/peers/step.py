"""The step that all tools time: a hundred products, and one more for each per cent that is planted.

As a program, ``step.py PER_CENT STEPS`` is what hyperfine starts; with pyperf's own options it is a benchmark
of pyperf's, which finds the per cent in the variable PLANT.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import torch

SIZE, PRODUCTS = 64, 100
PLANTS = (0, 1, 2, 5)
"""Per cent of the work that arms have more than the base; the first is an equal one."""


def step(per_cent: int) -> Callable[[], list[torch.Tensor]]:
    """One iteration. All products go to one place: kept apart, half as many again do not fit the cache."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(SIZE, SIZE, generator=generator) for _ in range(2))
    product, each = torch.empty_like(left), round(PRODUCTS * (1 + per_cent / 100))
    return lambda: [torch.mm(left, right, out=product) for _ in range(each)]


def by_pyperf() -> None:
    """Let pyperf time it."""
    import pyperf

    def timed(loops: int) -> float:
        start = time.perf_counter()
        for _ in range(loops):
            once()
        return time.perf_counter() - start

    once = step(int(os.environ["PLANT"]))
    pyperf.Runner().bench_time_func("step", timed)


if __name__ == "__main__":
    if "PLANT" in os.environ:
        by_pyperf()
    else:
        _step = step(int(sys.argv[1]))
        for _ in range(int(sys.argv[2])):
            _step()
