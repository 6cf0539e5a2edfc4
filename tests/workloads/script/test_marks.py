"""Where iterations end, and what is counted between two ends."""

from __future__ import annotations

from typing import Any

import pytest
from loops import HEAD, loop
from scripted import Start, Write, run

import perfsweep
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.script import explicit_marks
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


def test_of_several_optimisers_their_cycle_is_found(start: Start) -> None:
    assert counts(start("gan.py"), 4) == {"iterations": 4, "optimizer_steps": 12, "backward_calls": 12}


@pytest.mark.parametrize("order", ["AAB", "AAAAAB", "AABB"])
def test_a_cycle_is_found_whatever_its_order(start: Start, write: Write, order: str) -> None:
    text = f"""
import torch
a, b = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
A, B = (torch.optim.SGD([p], lr=0.1) for p in (a, b))
while True:
    for name in {order!r}:
        (a * b).sum().backward()
        globals()[name].step()
"""
    assert counts(start(write(text)), 3)["optimizer_steps"] == 3 * len(order)


def test_an_optimiser_that_goes_on_alone_is_taken_at_its_word(start: Start, write: Write) -> None:
    text = loop(head="idle = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)")
    assert counts(start(write(text)), 3)["optimizer_steps"] == 3


def test_a_step_that_calls_its_parents_is_one_step(start: Start, write: Write) -> None:
    head = """
class Own(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)
optimizer = Own(net.parameters(), lr=0.1)
"""
    assert counts(start(write(loop(head=head))), 3)["optimizer_steps"] == 3


FAILING = """
class Own(torch.optim.SGD):
    failures = 2
    def step(self, closure=None):
        Own.failures -= 1
        if Own.failures >= 0:
            raise FloatingPointError("an update that diverges")
        return super().step(closure)
optimizer = Own(net.parameters(), lr=0.1)
"""
CAUGHT = """
    optimizer.zero_grad()
    (net(torch.randn(8, 4)) ** 2).mean().backward()
    try:
        optimizer.step()
    except FloatingPointError:
        pass
"""


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


def test_the_cycle_of_many_optimisers_is_found(start: Start, write: Write) -> None:
    head = "each = [torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1) for _ in range(90)]"
    loss = "sum(o.param_groups[0]['params'][0].sum() for o in each)"
    step = f"\n    {loss}.backward()\n    for o in each: o.step()\n"
    script = start(write(loop(head=head, step=step)))
    assert counts(script, 2) == {"iterations": 2, "optimizer_steps": 180, "backward_calls": 2}


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


BY_ITSELF = """
    grads = torch.autograd.grad(net(torch.randn(8, 4)).mean(), [*net.parameters()])
    for p, g in zip(net.parameters(), grads): p.grad = g
    optimizer.step()
"""


def test_gradients_may_be_computed_without_backward(start: Start, write: Write) -> None:
    assert counts(start(write(loop(step=BY_ITSELF))), 4)["optimizer_steps"] == 4


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


def test_an_update_that_raised_is_none_and_those_after_it_are(start: Start, write: Write) -> None:
    found = counts(start(write(loop(head=FAILING, step=CAUGHT)), seconds=20.0), 3)
    assert found["optimizer_steps"] == 3


def test_every_fourth_end_may_be_one(start: Start, write: Write) -> None:
    assert counts(start(write(loop()), every=4), 2)["optimizer_steps"] == 8


def test_an_iteration_may_end_with_a_batch(start: Start) -> None:
    found = counts(start("plain.py", args="--accumulate=4", iteration="loader"), 8)
    assert (found["batches"], found["optimizer_steps"]) == (8, 2)


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


@pytest.mark.parametrize(
    ("end", "steps"), [("train:train_step", 1), ("train:Loop.once", 2), ("other:done", 2)]
)
def test_an_iteration_may_end_with_a_function(start: Start, write: Write, end: str, steps: int) -> None:
    write("def done(): pass", "other.py")
    script = start(write(HEAD + FUNCTION), iteration=end)
    assert counts(script, 3)["optimizer_steps"] == 3 * steps


def test_a_function_that_is_nowhere_is_named(start: Start, write: Write) -> None:
    write("def done(): pass", "other.py")
    toggles = {"own": {"off": "", "on": {"replace": {"train:trian": "other:done"}}}}
    with pytest.raises(ConfigError, match=r"train:trian: neither defined at the top of train\.py nor in"):
        start(write(HEAD + FUNCTION), {"own": "on"}, toggles=toggles)


def test_explicit_marks_come_before_updates(start: Start) -> None:
    assert counts(start("marked.py"), 4) == {
        "iterations": 4, "optimizer_steps": 12, "backward_calls": 12, "batches": 4, "examples": 32
    }  # fmt: skip


def test_explicit_marks_do_nothing_outside_a_trial() -> None:
    assert explicit_marks.arrived is None
    perfsweep.mark()
    assert list(perfsweep.steps([1, 2])) == [1, 2]


@pytest.mark.parametrize(
    ("fields", "unit", "each"),
    [({}, "example", 16), ({"units": 3}, "example", 3), ({"iteration": "loader"}, "example", 16)],
)
def test_units_are_examples_where_the_first_iterations_bring_some(
    start: Start, fields: dict[str, Any], unit: str, each: float
) -> None:
    script = start("plain.py", **fields)
    before = run(script, 1).progress()
    assert (script.unit, run(script, 3).progress() - before) == (unit, 3 * each)


BEFORE = (
    "from torch.utils.data import DataLoader\nbatch = next(iter(DataLoader(torch.randn(8, 4), batch_size=8)))"
)
UNUSED = "from torch.utils.data import DataLoader\nevaluation = DataLoader(torch.randn(8, 4), batch_size=8)"
TRAINER = "class Trainer: pass  # of its own, without a DataLoader"


@pytest.mark.parametrize("head", [BEFORE, UNUSED, TRAINER])
def test_what_a_script_only_speaks_of_is_no_unit(start: Start, write: Write, head: str) -> None:
    script = start(write(loop(head=head)))
    assert (run(script, 5).progress(), script.unit) == (5, "iteration")


AGAIN = """
from torch.utils.data import DataLoader
def batches():
    for batch in DataLoader(torch.randn(80, 4), batch_size=8):
        for _ in range(4):
            yield batch
fed = batches()
"""


def test_a_batch_that_serves_several_iterations_counts_these(start: Start, write: Write) -> None:
    script = start(write(loop("next(fed)", AGAIN)))
    assert (run(script, 7).progress(), script.unit) == (7, "iteration")


@pytest.mark.parametrize(("head", "acts"), [(BEFORE, False), (UNUSED, True), (AGAIN, True)])
def test_workers_cannot_act_on_batches_that_were_taken_before(
    start: Start, write: Write, head: str, acts: bool
) -> None:
    script = run(start(write(loop("next(fed)" if head is AGAIN else "", head))), 1)
    assert ("num_workers=2" not in obstacles(script.scene)) == acts


def test_units_are_iterations_where_there_are_none(start: Start, write: Write) -> None:
    script = start(write(loop()))
    assert (script.unit, run(script, 3).progress()) == ("iteration", 3)


def test_batches_to_evaluate_on_are_no_examples(start: Start, write: Write) -> None:
    head = "from torch.utils.data import DataLoader\nloader = DataLoader(torch.randn(8, 4), batch_size=8)"
    body = "with torch.no_grad():\n    for batch in loader: net(batch)\nfor batch in loader: pass"
    assert counts(start(write(loop(body, head))), 2)["examples"] == 16


def test_nested_batches_count_their_rows(start: Start) -> None:
    found = counts(start("dict_batches.py"), 2)
    assert (found["examples"], found["worker_batches"]) == (16, 2)


@pytest.mark.parametrize(
    ("args", "cadence"),
    [("", 32), ("--accumulate=4", 8), ("--batch_size=256 --accumulate=2", 1), ("--batch_size=4", 1)],
)
def test_timed_regions_are_whole_epochs_where_these_are_short(start: Start, args: str, cadence: int) -> None:
    assert start("plain.py", args=args).cadence == cadence
