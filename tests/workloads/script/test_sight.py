"""Lines of a script that draw other numbers in every process, and its models."""

from __future__ import annotations

import pytest
from torch import nn

from perfsweep.workloads.script.sight import UNSEEDED, parameters_of


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


def test_models_of_one_class_are_counted_together() -> None:
    critic, generator = nn.Sequential(nn.Linear(3, 1)), nn.Sequential(nn.Linear(2, 3))
    assert parameters_of([critic, nn.Linear(1, 1), generator]) == {"2 Sequential": 4 + 9, "Linear": 2}
