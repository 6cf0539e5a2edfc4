"""Lines of a script that draw anew in every process."""

from __future__ import annotations

import pytest

from perfsweep.workloads.script.sight import UNSEEDED


@pytest.mark.parametrize(
    "line",
    [
        "rng = np.random.default_rng()",
        "r = np.random.RandomState()",
        "r = random.Random()",
        "r = random.SystemRandom()",
        "name = os.urandom(8)",
        "key = uuid.uuid4()",
        "s = int(time.time())",
        "s = time.time_ns()",
        "random.seed(None)",
        "torch.manual_seed(int(time.time()))",
        "random.seed(time.time())",
        "torch.seed()",
        "t = secrets.token_hex(8)",
        "t = secrets.token_bytes()",
    ],
)
def test_it_may_draw_without_a_seed(line: str) -> None:
    assert UNSEEDED.search(line)


@pytest.mark.parametrize(
    "line",
    [
        "rng = np.random.default_rng(0)",
        "r = random.Random(seed)",
        "torch.manual_seed(1)",
        "random.seed(3)",
        "time.sleep(1)",
        "start = time.perf_counter()",
        "my_default_rng_()",
        "key = uuid.uuid5(space, name)",
    ],
)
def test_it_does_not(line: str) -> None:
    assert not UNSEEDED.search(line)
