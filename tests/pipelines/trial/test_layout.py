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


def test_a_seed_is_drawn_from_all_that_a_process_is_known_by() -> None:
    seeds = {
        layout.draw("sweep", "p000", server, arm, n) for server in (1, 2) for arm in "ab" for n in (0, 1)
    }
    assert len(seeds) == 8
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert layout.draw("sweep", 1) == layout.draw("sweep", 1)


def test_servers_differ_in_hash_seed_and_in_the_size_of_their_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    drawn = [layout.environment("system", seed) for seed in range(20)]
    assert len({env["PYTHONHASHSEED"] for env in drawn}) == 20
    assert len({sum(map(len, env.values())) for env in drawn}) >= 15
    assert layout.environment("system", None) == {"PYTHONHASHSEED": "0"}


@pytest.mark.parametrize(("own", "used"), [("3", "3"), ("random", "7"), ("", "7")])
def test_a_hash_seed_of_the_users_own_holds_for_every_process(
    own: str, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", own)
    assert layout.environment("system", 7)["PYTHONHASHSEED"] == used
    assert layout.hashing("7") == {"PYTHONHASHSEED": used}


def test_the_allocator_is_held_still_unless_it_is_to_be_the_systems() -> None:
    assert layout.environment("steady", 1).keys() - layout.environment("system", 1).keys() == STEADY.keys()


def test_a_placebo_keeps_its_junk_and_an_arm_none(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[object] = []
    monkeypatch.setattr(layout, "_held", held)
    for amount in (0, 2):
        held.clear()
        layout.keep_junk(amount)
        objects, entries, tensors, large = held
        assert (len(objects), len(entries), len(tensors), large.numel()) == (
            1000 * amount,
            500 * amount,
            30 * amount,
            250_000 * amount,
        )


def test_the_heap_ends_elsewhere_with_every_seed() -> None:
    places = {
        subprocess.run(
            [sys.executable, "-c", MOVED, str(seed)], capture_output=True, text=True, check=True
        ).stdout
        for seed in range(6)
    }
    assert len(places) >= 5
