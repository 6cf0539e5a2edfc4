"""What an exception of a trial is kept as: an outcome, and where a person looks."""

from __future__ import annotations

import errno
import json
import multiprocessing
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._utils import ExceptionWrapper

from perfsweep.pipelines.store.trial_schema import Outcome
from perfsweep.pipelines.trial.failures import ON_OOM, as_failure, classify, keep_on_oom
from perfsweep.workloads.errors import ContractError


def raised(source: str, name: str) -> BaseException:
    """What running this text as a file raises."""
    try:
        exec(compile(source, name, "exec"), {"json": json})
    except BaseException as error:  # noqa: BLE001 - it is what a test looks at
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("error", "oom"),
    [
        (MemoryError("no room"), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("a shape of 3"), False),
        (ValueError("can't allocate memory"), False),
    ],
)
def test_memory_that_ran_out_is_told_from_other_mistakes(error: Exception, oom: bool) -> None:
    outcome, failure = classify(error)
    assert outcome is (Outcome.OOM if oom else Outcome.FAILED)
    assert (failure.type, failure.message, failure.where) == (type(error).__name__, str(error), "")


def test_a_message_that_was_coloured_for_a_terminal_is_plain() -> None:
    assert as_failure(ValueError("\x1b[1mno\x1b[0m data")).message == "no data"


def test_a_sentence_about_the_users_code_has_no_place_in_ours(tmp_path: Path) -> None:
    ours = str(Path(classify.__code__.co_filename).parents[2] / "workloads" / "api.py")
    scope: dict[str, Any] = {"ContractError": ContractError}
    exec(compile("def call():\n    raise ContractError('my:W: ...')\n", ours, "exec"), scope)
    for caller, place in ((str(tmp_path / "train.py"),) * 2, (ours, "")):
        with pytest.raises(ContractError) as caught:
            exec(compile("call()\n", caller, "exec"), {"call": scope["call"]})
        trace = caught.value.__traceback__
        assert trace is not None
        where = as_failure(caught.value.with_traceback(trace.tb_next)).where
        assert where.partition(":")[0] == place


FULL = "unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)"


@pytest.mark.parametrize(
    ("said", "remedy"),
    [("no such picture", ""), (FULL, ". Enlarge /dev/shm, in a container by --shm-size, or")],
)
def test_of_a_loaders_worker_the_exception_itself_is_told_with_its_line(
    tmp_path: Path, said: str, remedy: str
) -> None:
    file = tmp_path / "data.py"
    file.write_text(f"raise RuntimeError({said!r})\n")
    first = raised(file.read_text(), str(file))
    carried = ExceptionWrapper((type(first), first, first.__traceback__), "in DataLoader worker process 0")
    with pytest.raises(RuntimeError) as told:
        carried.reraise()
    failure = as_failure(told.value)
    assert failure.message.startswith(f"{said} (in DataLoader worker process 0){remedy}")
    assert failure.where.startswith(f"{file}:1, in <module>: raise RuntimeError")


def test_semaphores_that_cannot_be_shared_name_their_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*how: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("_multiprocessing.SemLock", refused)
    with pytest.raises(OSError) as told:
        multiprocessing.Semaphore()
    remedy = "Processes share semaphores in /dev/shm: let it be written, or choose num_workers=0"
    assert as_failure(told.value).message == f"[Errno {errno.EROFS}] Read-only file system. {remedy}"


def test_what_held_the_memory_is_written_next_to_the_record_and_hides_no_failure_where_it_cannot_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost() -> Any:
        raise RuntimeError("lost")

    good, bad = SimpleNamespace(_snapshot=lambda: {"segments": []}), SimpleNamespace(_snapshot=lost)
    assert keep_on_oom(tmp_path, bad) is None
    assert capsys.readouterr().out == "no memory snapshot: lost\n"
    assert keep_on_oom(tmp_path, good) == tmp_path / ON_OOM
    assert pickle.loads((tmp_path / ON_OOM).read_bytes()) == {"segments": []}


def test_the_users_line_comes_before_lines_of_installed_packages_and_ours(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "lib.py"
    record = tmp_path / "vendored/lib-1.0.dist-info/RECORD"
    record.parent.mkdir(parents=True)
    record.write_text("lib/inner.py,sha256=,0\n")
    vendored = tmp_path / "vendored/lib/inner.py"
    ours = Path(classify.__code__.co_filename).parents[2] / "workloads" / "hook.py"
    user, inner = "call()\n", "def call():\n    raise KeyError('x')\n"
    for between in (library, vendored, ours):
        scope: dict[str, Any] = {}
        exec(compile(inner, str(between), "exec"), scope)
        with pytest.raises(KeyError) as caught:
            exec(compile(user, str(tmp_path / "train.py"), "exec"), {"call": scope["call"]})
        frames = caught.value.__traceback__
        assert frames is not None
        place = as_failure(caught.value.with_traceback(frames.tb_next)).where
        assert place.startswith(f"{tmp_path / 'train.py'}:1, in <module>")


def test_what_only_runs_on_cuda_is_unsupported_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    error = AssertionError("Torch not compiled with CUDA enabled")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    outcome, failure = classify(error)
    assert outcome is Outcome.UNSUPPORTED
    assert failure.message.startswith("needs CUDA, which this machine has not")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert classify(error)[0] is Outcome.FAILED
