"""A fixed piece of work before a timing trial: what it takes tells a slow machine from slow code.

It runs before set-up, the same for every arm: warm-up lies between it and the region, so that it leaves no
arm a warmer cache than another.
"""

from __future__ import annotations

import time

import torch

SIZE = 192
PRODUCTS = 128
"""Together some 20 ms of a core, within its own caches."""


def work_ns() -> int:
    """CPU time of the work on this thread: a displaced thread is no slow machine, and shows elsewhere."""
    matrix = torch.full((SIZE, SIZE), 1 / SIZE, dtype=torch.float32)
    product = torch.mm(matrix, matrix)  # the library's own start is no part of it
    start = time.thread_time_ns()
    for _ in range(PRODUCTS):
        torch.mm(matrix, matrix, out=product)
    return time.thread_time_ns() - start
