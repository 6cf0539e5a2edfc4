"""What a process's layout is drawn from, and what the draw moves."""

from __future__ import annotations

import subprocess
import sys

import pytest

from perfsweep.pipelines.trial import layout
from perfsweep.workloads.preloads import STEADY

MOVED = """
import sys
from perfsweep.pipelines.trial import layout
layout.shift_addresses(int(sys.argv[1]))
import ctypes, mmap
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
print(libc.malloc(3000) % 4096, libc.malloc(300000) % 4096)
"""


def test_servers_differ_in_hash_seed_unless_the_user_sets_it_and_in_the_size_of_their_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    drawn = [layout.environment("system", seed) for seed in range(20)]
    assert len({env["PYTHONHASHSEED"] for env in drawn}) == 20
    assert len({sum(map(len, env.values())) for env in drawn}) >= 15
    assert layout.environment("system", None) == {"PYTHONHASHSEED": "0"}
    for own, used in (("3", "3"), ("random", "7")):
        monkeypatch.setenv("PYTHONHASHSEED", own)
        assert layout.environment("system", 7)["PYTHONHASHSEED"] == used
    assert layout.environment("steady", 1).keys() - layout.environment("system", 1).keys() == STEADY.keys()


def test_the_heap_ends_elsewhere_with_every_seed() -> None:
    places = {
        subprocess.run(
            [sys.executable, "-c", MOVED, str(seed)], capture_output=True, text=True, check=True
        ).stdout
        for seed in range(3)
    }
    assert len(places) >= 2
