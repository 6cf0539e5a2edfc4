"""Checkpoints hold the moment they were asked for, whoever writes them, and errors come out."""

from __future__ import annotations

import multiprocessing
import threading
import time
from pathlib import Path

import pytest
import torch

from perfsweep.workloads.training import checkpoints
from perfsweep.workloads.training.checkpoints import AsyncWriter, SyncWriter


@pytest.fixture
def gate(monkeypatch) -> threading.Event:
    """Holds every write back until it is set."""
    opened = threading.Event()
    write = checkpoints.write

    def wait_and_write(state, file: Path) -> None:
        assert opened.wait(timeout=120)
        write(state, file)

    monkeypatch.setattr(checkpoints, "write", wait_and_write)
    return opened


@pytest.fixture
def writer():
    made = AsyncWriter()
    yield made
    made.close()


def load(file: Path):
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("kind", [SyncWriter, AsyncWriter])
def test_a_checkpoint_can_be_read_back(tmp_path, kind) -> None:
    writer, file = kind(), tmp_path / "c.pt"
    writer.save({"step": 3, "nested": {"list": [torch.arange(4.0), "text"]}}, file)
    writer.close()
    saved = load(file)
    assert saved["step"] == 3
    assert torch.equal(saved["nested"]["list"][0], torch.arange(4.0))
    assert writer.written == 1
    assert [path.name for path in tmp_path.iterdir()] == ["c.pt"]


def test_parameters_changed_right_after_the_call_leave_the_file_unchanged(tmp_path, gate, writer) -> None:
    parameter = torch.zeros(5)
    writer.save({"deep": [{"parameter": parameter}]}, tmp_path / "c.pt")
    parameter.add_(1.0)
    gate.set()
    writer.flush()
    assert torch.equal(load(tmp_path / "c.pt")["deep"][0]["parameter"], torch.zeros(5))


def test_a_copy_has_the_types_of_what_it_copies_and_nothing_of_its_memory() -> None:
    value = {"a": (torch.ones(2), [torch.zeros(1)]), "b": {"c": [3]}, "d": "text"}
    copied = checkpoints.snapshot(value)
    assert str(copied) == str(value) and copied["b"]["c"] is not value["b"]["c"]
    value["a"][0].add_(1)
    value["a"][1][0].add_(1)
    assert (copied["a"][0].tolist(), copied["a"][1][0].tolist()) == ([1, 1], [0])


def test_no_partial_file_ever_has_the_final_name(tmp_path, monkeypatch) -> None:
    file = tmp_path / "c.pt"
    checkpoints.write({"step": 1}, file)

    def break_off(state, partial: Path) -> None:
        partial.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", break_off)
    with pytest.raises(OSError, match="disk full"):
        checkpoints.write({"step": 2}, file)
    assert load(file) == {"step": 1}


@pytest.mark.parametrize("next_call", ["save", "flush", "close"])
def test_an_error_of_the_thread_is_raised_by_the_next_call(tmp_path, next_call) -> None:
    writer, nowhere = AsyncWriter(), tmp_path / "missing" / "c.pt"
    writer.save({"step": 1}, nowhere)
    with pytest.raises(Exception, match="missing"):
        writer.save({"step": 2}, tmp_path / "c.pt") if next_call == "save" else getattr(writer, next_call)()
    assert writer.written == 0
    writer.close()  # said once, an error is over


def test_at_most_one_copy_waits(tmp_path, gate, writer) -> None:
    writer.save({"step": 1}, tmp_path / "c.pt")
    second = threading.Thread(target=writer.save, args=({"step": 2}, tmp_path / "c.pt"))
    second.start()
    second.join(timeout=0.2)
    assert second.is_alive(), "a second copy was taken while the first was still in memory"
    gate.set()
    second.join(timeout=120)
    writer.flush()
    assert load(tmp_path / "c.pt") == {"step": 2}


def test_close_waits_for_the_last_file_and_ends_the_thread(tmp_path, gate) -> None:
    writer = AsyncWriter()
    writer.save({"step": 1}, tmp_path / "c.pt")
    threading.Timer(0.1, gate.set).start()
    writer.close()
    assert load(tmp_path / "c.pt") == {"step": 1}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("checkpoint")]


def test_a_process_that_ends_without_close_still_writes_its_last_file(tmp_path) -> None:
    def end_at_once() -> None:
        write = checkpoints.write
        checkpoints.write = lambda state, file: (time.sleep(0.3), write(state, file))
        AsyncWriter().save({"step": 9}, tmp_path / "c.pt")

    process = multiprocessing.get_context("fork").Process(target=end_at_once)
    process.start()
    process.join(timeout=60)
    assert load(tmp_path / "c.pt") == {"step": 9}
