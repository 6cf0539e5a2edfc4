"""A script under control: its process is its own, and the trial finds its own again at every mark."""

# Drives `program`, `marks` and `workload` of perfsweep.workloads.script.
from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest
import torch
from loops import loop
from scripted import Start, Write, run

from perfsweep.pipelines.check import trials
from perfsweep.workloads.errors import ConfigError


def test_a_script_sees_what_a_plain_interpreter_gives_it(start: Start, write: Write, tmp_path: Path) -> None:
    head = """
import neighbour, os, sys
seen = __name__, __file__, sys.argv, os.getcwd(), sys.path[0], sys.modules["__main__"].net is net
assert __package__ is __spec__ is __cached__ is None
"""
    write("VALUE = 1", "neighbour.py")
    file = write(loop(head=head))
    start(file, args="--x 'a b'")
    sys.modules.pop("neighbour")
    here = str(tmp_path)
    plain = "__main__", str(file), [str(file), "--x", "a b"], here, here, True
    assert vars(sys.modules["__main__"])["seen"] == plain


def test_the_process_is_put_back_when_the_script_is_closed(
    start: Start, write: Write, tmp_path: Path
) -> None:
    (tmp_path / "inner").mkdir()
    before = (sys.argv, sys.path, sys.modules["__main__"], Path.cwd(), torch.optim.Optimizer.__init__)
    settings = trials.settings()
    head = """
import gc, os, torch
os.chdir("inner")
os.environ["OWN"] = "1"
gc.disable()
torch.backends.cudnn.benchmark = True
torch.backends.cuda.matmul.fp32_precision = "tf32"
"""
    script = start(write(loop(head=head)))
    assert Path.cwd() == tmp_path / "inner" and not gc.isenabled()
    assert len(trials._changed(settings, trials.settings())) == 6
    script.close()
    assert trials._changed(settings, trials.settings()) == []
    assert before == (sys.argv, sys.path, sys.modules["__main__"], Path.cwd(), torch.optim.Optimizer.__init__)


MARKED_INSIDE = """
import contextlib
for _ in range(1000):
    with {block}:
        optimizer.zero_grad()
        with torch.enable_grad():
            (net(torch.ones(2, 4)) ** 2).mean().backward()
        optimizer.step()
        {check}
"""


@pytest.mark.parametrize(
    ("block", "check", "state"),
    [
        ("torch.no_grad()", "assert not torch.is_grad_enabled()", "torch.is_grad_enabled()"),
        (
            "torch.autocast('cpu')",
            "assert torch.is_autocast_enabled('cpu')",
            "not torch.is_autocast_enabled('cpu')",
        ),
        (
            "torch.device('meta'), torch.device('cpu')",
            "assert torch.empty(1).device.type == 'cpu'",
            "torch._C._len_torch_function_stack() == 0",
        ),
        (
            "torch.utils._python_dispatch._disable_current_modes()",
            "pass",
            "torch._C._len_torch_dispatch_stack() == 0",
        ),
    ],
)
def test_what_a_script_has_set_of_the_thread_stays_with_it(
    start: Start, write: Write, block: str, check: str, state: str
) -> None:
    text = MARKED_INSIDE.format(block=block, check=check).replace("torch.ones(2, 4)", "inputs")
    script = start(write(loop(head="inputs = torch.ones(2, 4)\n" + text, times="if False:")))
    for _ in range(3):
        assert eval(state)
        run(script, 1)
    assert eval(state)


def test_a_script_is_ended_at_its_mark_so_that_its_own_endings_run(
    start: Start, write: Write, tmp_path: Path
) -> None:
    text = f"""
try:
    exec({loop()!r}, globals())
except Exception:
    raise SystemExit("an end is no Exception")
finally:
    open({str(tmp_path / "scratch" / "end")!r}, "w").write("ended")
"""
    start(write(text)).close()
    assert (tmp_path / "scratch" / "end").read_text() == "ended"


NO_UPDATE = loop(
    step="""
    net(torch.ones(1, 4)).sum().backward()
"""
)


BATCHES = """
import torch
for batch in torch.utils.data.DataLoader(torch.ones(4, 2)):
    batch.sum()
"""

ONE_BY_ONE = """
import torch
nets = [torch.nn.Linear(4, 1) for _ in range(2)]
every = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
for net, optimizer in zip(nets, every):
    for _ in range(20):
        net(torch.ones(1, 4)).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", r"ended without an optimiser's step, a backward .* perfsweep.mark\(\) .* workload=command"),
        (loop(times="for _ in range(3):"), "ended by itself after 3 iterations.*more to do with [a-z.]*$"),
        (loop(times="for _ in range(13):"), "after 13 iterations.*measure.iterations=3 measure.warmup_max=5"),
        (BATCHES, "ended without an optimiser's step; say .*workload.iteration=loader or package"),
        (ONE_BY_ONE, "ended after 40 steps of optimisers, in no order that came back; .*=backward or "),
        ("def f(:", "line 1 is no Python"),
        (NO_UPDATE, "ran on without an optimiser's step.*workload.iteration"),
        (
            "while True: pass",
            "ran on without an optimiser's step, and was at train.py:1 in the end; .*workload.iteration",
        ),
    ],
    ids=[
        "no iteration",
        "too few",
        "few",
        "batches alone",
        "one optimiser after the other",
        "no Python",
        "no update",
        "no end",
    ],
)
def test_a_script_that_cannot_be_measured_is_told_why(
    start: Start, write: Write, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        run(start(write(text), seconds=1.3 if text.startswith("while") else 60), 20)


def test_updates_are_not_blamed_where_an_iteration_ends_otherwise(start: Start, write: Write) -> None:
    with pytest.raises(ConfigError, match=r"ended without a batch; say .*=backward or package"):
        run(start(write(ONE_BY_ONE), iteration="loader"), 20)


def test_a_crash_is_the_scripts_own_with_its_line(start: Start) -> None:
    script = start("crashes.py")
    with pytest.raises(ZeroDivisionError) as caught:
        run(script, 20)
    frames = [entry.path for entry in caught.traceback]
    assert str(frames[-1]).endswith("crashes.py")
    assert script.counters()["iterations"] == 10  # set-up made the first


def test_a_process_that_the_script_forks_ends_as_python_would(
    capfd: pytest.CaptureFixture[str], start: Start, write: Write
) -> None:
    body = """
import os, sys
ends = []
for end in ("raise ValueError('inner')", "raise SystemExit(3)", "sys.exit()", "sys.exit('so long')", "pass"):
    child = os.fork()
    if child == 0:
        exec(end)
        break
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
if child == 0:
    break
"""
    script = run(start(write(loop(body))), 1)
    assert vars(sys.modules["__main__"])["ends"] == [1, 3, 0, 1, 0]
    script.close()
    said = capfd.readouterr().err
    assert (
        "ValueError: inner" in said
        and "\nso long\n" in said
        and "TypeError" not in said
        and "SystemExit" not in said
    )


def test_a_module_starts_as_python_m_starts_it(start: Start, tmp_path: Path) -> None:
    (tmp_path / "pkg_of_m").mkdir()
    (tmp_path / "pkg_of_m/__init__.py").touch()
    (tmp_path / "pkg_of_m/net.py").touch()
    file = tmp_path / "pkg_of_m/train.py"
    head = "import sys\nfrom . import net\nassert __package__ == 'pkg_of_m' and __name__ == '__main__'\n"
    file.write_text(head + f"assert sys.path[0] == {str(tmp_path)!r}, sys.path[0]\n" + loop())
    assert run(start(file, module="pkg_of_m.train", folder=str(tmp_path)), 2).progress() == 2
