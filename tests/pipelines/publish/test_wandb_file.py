"""The reader of `.wandb` files, against files of wandb itself, of an encoder of our own, and damaged ones."""

from __future__ import annotations

import math
import os
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_file import read_run

from perfsweep.pipelines.config.tracking import own_environment
from perfsweep.pipelines.config.tracking import settings as wandb_settings
from perfsweep.pipelines.publish.wandb_file import Extent, extent, framed, payloads
from perfsweep.workloads.errors import RecordError

HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
BLOCK = 32768
SPECIAL = {0: math.nan, 1: math.inf, 2: -math.inf, 3: 0.1 + 0.2, 4: 1e-320, 5: 12345678901234567}
ROWS = 8


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run written by wandb, with awkward values, nested configuration and an exit code."""
    root = tmp_path_factory.mktemp("run")
    with own_environment(root):
        import wandb

        own = wandb_settings(
            root,
            run_id="r1",
            project="p",
            run_group="g",
            run_name="n",
            run_job_type="bench",
            run_tags=("a", "b"),
        )
        run = wandb.init(
            settings=wandb.Settings(**own), config={"toggles": {"amp": "off", "slab": 8}, "seed": 3}
        )
        run.define_metric("iter/*", step_metric="iter/index")
        for index in range(ROWS):
            run.log({"iter/index": index, "iter/ms": SPECIAL.get(index, index / 7), "text": "é"})
        run.summary.update({"bench/median_ms": 1.5, "outcome": "ok"})
        run.finish(exit_code=3)
        wandb.teardown()
    return Path(run.dir).parent / "run-r1.wandb"


def encoded(records: list[bytes]) -> bytes:
    """Records in the block format, written independently of the reader."""
    out = bytearray(HEADER)
    for record in records:
        rest, first = record, True
        while first or rest:
            left = BLOCK - len(out) % BLOCK
            if left < 7:
                out += bytes(left)
                continue
            chunk, rest = rest[: left - 7], rest[left - 7 :]
            kind = (1 if first else 4) if not rest else (2 if first else 3)
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + chunk), len(chunk), kind) + chunk
            first = False
    return bytes(out)


def test_a_file_cut_at_any_byte_gives_the_rows_before_the_cut(run_file: Path, tmp_path: Path) -> None:
    data, whole = run_file.read_bytes(), repr(read_run(run_file).history)
    file, counts = tmp_path / "cut.wandb", []
    for size in range(0, len(data), 11):
        file.write_bytes(data[:size])
        run = read_run(file)
        assert extent(file) == Extent(len(run.history), run.complete)
        counts.append(len(run.history))
        assert not run.complete
        assert whole.startswith(repr(run.history)[:-1])  # as text, because NaN does not equal itself
    assert counts == sorted(counts)
    assert set(counts) == set(range(ROWS + 1))


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_a_changed_byte_never_raises_and_never_invents_rows(
    run_file: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(run_file.read_bytes())
    position = data.draw(st.integers(len(HEADER), len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    file = tmp_path_factory.getbasetemp() / f"changed-{os.getpid()}.wandb"
    file.write_bytes(content)
    run = read_run(file)
    assert repr(read_run(run_file).history).startswith(repr(run.history)[:-1])


sizes = st.lists(
    st.one_of(st.integers(0, 60), st.integers(BLOCK - 40, BLOCK + 40), st.integers(0, 3 * BLOCK)), max_size=6
)


@given(sizes=sizes, cut=st.integers(0, 200))
@settings(max_examples=100, deadline=None)
def test_records_of_any_size_survive_block_borders_and_cuts(sizes: list[int], cut: int) -> None:
    records = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    data = encoded(records)
    assert framed(records) == data
    assert list(payloads(data)) == records
    found = list(payloads(data[: len(data) - cut]))
    assert found == records[: len(found)]
    assert cut == 0 or not records or len(found) < len(records) or cut > len(data)


@pytest.mark.parametrize("left", [0, 3, 7])
def test_a_record_may_begin_anywhere_in_a_block(left: int) -> None:
    """Also where only its header fits, or not even that."""
    records = [b"a" * (BLOCK - len(HEADER) - 7 - left), b"b" * 20, b"", b"c" * BLOCK]
    assert framed(records) == encoded(records)
    assert list(payloads(framed(records))) == records


def test_a_block_padded_with_zeros_is_skipped() -> None:
    data = encoded([b"one"])
    padded = data + bytes(BLOCK - len(data) % BLOCK)
    second = encoded([b"two"])[len(HEADER) :]
    assert list(payloads(padded + second)) == [b"one", b"two"]


def test_a_missing_or_foreign_file_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "run-x.wandb"
    with pytest.raises(RecordError, match="cannot be read"):
        read_run(file)
    file.write_bytes(b":W&C\xe1\xbe\x00" + b"x" * 20)
    with pytest.raises(RecordError, match=r"run-x\.wandb is no offline run"):
        read_run(file)
