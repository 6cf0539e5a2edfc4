"""Where iterations end, and what is counted between two ends."""

from __future__ import annotations

from typing import Any

import pytest
from loops import HEAD, loop
from scripted import Start, Write, run

from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.script.toggles import obstacles

pytestmark = pytest.mark.workloads


def counts(script: Any, iterations: int) -> dict[str, float]:
    before = dict(script.counters())
    run(script, iterations)
    after = script.counters()
    more = {name: after[name] - before.get(name, 0.0) for name in after}
    return {name: count for name, count in more.items() if count}


def test_an_iteration_ends_with_an_optimisers_step(start: Start) -> None:
    found = counts(start("plain.py", args="--accumulate=2"), 4)
    assert found == {
        "iterations": 4, "optimizer_steps": 4, "backward_calls": 8, "batches": 8, "examples": 128
    }  # fmt: skip


HOOKS = """
net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(35)])
optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in net.parameters()}
def update(p):
    optimizers[p].step()
    optimizers[p].zero_grad()
for p in net.parameters():
    p.register_post_accumulate_grad_hook(update)
"""
BACKWARD = "    net(torch.randn(8, 4)).mean().backward()\n"


def test_updates_in_hooks_of_a_backward_pass_are_one_iteration(start: Start, write: Write) -> None:
    script = start(write(loop(head=HOOKS, step=BACKWARD)))
    assert counts(script, 3) == {"iterations": 3, "optimizer_steps": 210, "backward_calls": 3}


IDLE = "    optimizer.step()\n"


def test_iterations_without_a_backward_pass_are_refused_with_what_was_seen(
    start: Start, write: Write
) -> None:
    script = start(write(loop(step=IDLE)))
    with pytest.raises(
        ConfigError, match=r"3 iterations .*, with 3 updates of 1 optimisers, and no backward"
    ):
        run(script, 3)
    assert counts(start(write(loop(step=IDLE)), iteration="optimizer.step"), 4)["optimizer_steps"] == 4


SCALED = """
    optimizer.zero_grad()
    scaler.scale((1e3 * net(torch.randn(8, 4))).square().mean()).backward()
    scaler.step(optimizer); scaler.update()
"""


@pytest.mark.parametrize(("scale", "skips"), [(1.0, 0), (1e38, 4)])
def test_an_update_that_a_scaler_leaves_out_ends_an_iteration_too(
    start: Start, write: Write, scale: float, skips: int
) -> None:
    head = f"scaler = torch.amp.GradScaler('cpu', init_scale={scale}, backoff_factor=0.999)"
    found = counts(start(write(loop(head=head, step=SCALED))), 4)
    assert (found["iterations"], found["backward_calls"]) == (4, 4)
    assert (found.get("optimizer_steps", 0), found.get("skipped_updates", 0)) == (4 - skips, skips)


FUNCTION = """
import other
def train_step():
    optimizer.zero_grad()
    (net(torch.randn(8, 4)) ** 2).mean().backward()
    optimizer.step()
class Loop:
    def once(self):
        train_step(); train_step(); other.done()
while True:
    Loop().once()
"""


@pytest.mark.parametrize(("end", "steps"), [("train:train_step", 1), ("train:Loop.once", 2)])
def test_an_iteration_may_end_with_a_function(start: Start, write: Write, end: str, steps: int) -> None:
    write("def done(): pass", "other.py")
    script = start(write(HEAD + FUNCTION), iteration=end)
    assert counts(script, 3)["optimizer_steps"] == 3 * steps


def test_explicit_marks_come_before_updates(start: Start) -> None:
    assert counts(start("marked.py"), 4) == {
        "iterations": 4, "optimizer_steps": 12, "backward_calls": 12, "batches": 4, "examples": 32
    }  # fmt: skip


BEFORE = (
    "from torch.utils.data import DataLoader\nbatch = next(iter(DataLoader(torch.randn(8, 4), batch_size=8)))"
)
UNUSED = "from torch.utils.data import DataLoader\nevaluation = DataLoader(torch.randn(8, 4), batch_size=8)"


AGAIN = """
from torch.utils.data import DataLoader
def batches():
    for batch in DataLoader(torch.randn(80, 4), batch_size=8):
        for _ in range(4):
            yield batch
fed = batches()
"""


@pytest.mark.parametrize(("head", "acts"), [(BEFORE, False), (UNUSED, True), (AGAIN, True)])
def test_workers_cannot_act_on_batches_that_were_taken_before(
    start: Start, write: Write, head: str, acts: bool
) -> None:
    script = run(start(write(loop("next(fed)" if head is AGAIN else "", head))), 1)
    assert ("num_workers=2" not in obstacles(script.scene)) == acts


@pytest.mark.parametrize(("args", "cadence"), [("--accumulate=4", 8), ("--batch_size=256 --accumulate=2", 1)])
def test_timed_regions_are_whole_epochs_where_these_are_short(start: Start, args: str, cadence: int) -> None:
    assert start("plain.py", args=args).cadence == cadence


IN_A_THREAD = """
from concurrent.futures import ThreadPoolExecutor
threads = ThreadPoolExecutor(1)
def update(grad):
    threads.submit(optimizer.step).result()
net.weight.register_hook(update)
"""


def test_hooks_in_another_thread_count_once_backward_returns(start: Start, write: Write) -> None:
    script = start(write(loop(head=IN_A_THREAD, step=BACKWARD)))
    assert counts(script, 3) == {"iterations": 3, "optimizer_steps": 3, "backward_calls": 3}
