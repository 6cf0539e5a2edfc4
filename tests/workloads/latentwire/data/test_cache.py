"""What is kept on disk: keys, rows of tokens, and a teacher's results with what is missing of them."""

from __future__ import annotations

import fcntl
from pathlib import Path

import numpy as np
import pytest
import torch

from perfsweep.workloads.errors import RecordError
from perfsweep.workloads.latentwire.data.cache import (
    TeacherCache,
    fingerprint,
    load_rows,
    locked,
    save_rows,
    weights_key,
)
from perfsweep.workloads.latentwire.data.row_layout import Row

ROWS = [Row([1, 2, 3], [4]), Row([5], [6, 7]), Row([8, 9], [10])]


@pytest.mark.parametrize("key", [weights_key, fingerprint])
def test_weights_are_told_apart_by_name_shape_and_content(key) -> None:
    one = torch.arange(12.0)
    keys = {
        key([("a", one)]),
        key([("b", one)]),
        key([("a", one.view(3, 4))]),
        key([("a", one + 1)]),
        key([("a", one.flip(0))]),  # of the same sum
        key([("a", one), ("b", one)]),
    }
    assert len(keys) == 6
    assert key([("a", one.clone())]) in keys


def test_rows_come_back_and_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    assert load_rows(folder, 3) is None
    save_rows(folder, ROWS)
    assert load_rows(folder, 3) == ROWS
    with pytest.raises(RecordError, match="does not hold 2 examples; delete the folder"):
        load_rows(folder, 2)
    np.save(folder / "ids.npy", np.arange(9, dtype=np.int32))
    with pytest.raises(RecordError, match="does not hold 3 examples"):
        load_rows(folder, 3)
    for broken in (b"broken", b""):
        (folder / "ids.npy").write_bytes(broken)
        with pytest.raises(RecordError, match=r"cannot be read .*; delete the folder and start again"):
            load_rows(folder, 3)


def test_hidden_states_are_kept_by_example_until_all_are_there(tmp_path: Path) -> None:
    cache = TeacherCache(tmp_path / "t", (3, 2, 4), torch.float64)
    assert cache.missing([2, 0, 1]) == [0, 1, 2]
    cache.keep([2, 0], torch.arange(16.0).view(2, 2, 4))
    assert not cache.complete
    assert cache.missing([2, 1, 0]) == [1]
    assert cache.hidden(torch.tensor([0, 2])).flatten().tolist() == [*range(8, 16), *range(8)]
    again = TeacherCache(tmp_path / "t", (3, 2, 4), torch.float64)
    assert again.missing(range(3)) == [1]
    again.keep([1], torch.full((1, 2, 4), 7.0))
    assert again.complete
    assert again.missing(range(3)) == []
    assert again.hidden(torch.tensor([1])).dtype == torch.float64
    assert (again.hidden(torch.tensor([1])) == 7).all()
    with cache.building():  # the other one has finished meanwhile
        assert cache.complete


def test_a_folder_is_one_process_at_a_time_and_free_afterwards(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    with locked(folder), (folder / "lock").open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (folder / "lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_file_of_another_size_is_refused(tmp_path: Path) -> None:
    TeacherCache(tmp_path / "t", (3, 2, 4), torch.float32)
    with pytest.raises(RecordError, match=r"values\.bin has 96 bytes, not 64; delete "):
        TeacherCache(tmp_path / "t", (2, 2, 4), torch.float32)
