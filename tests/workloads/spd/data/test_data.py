"""All loaders hand out one plan's batches; corpora are what they say."""

from __future__ import annotations

import hashlib
import math
from collections import Counter

import numpy as np
import pytest
import torch
from tiers import longer

from perfsweep.workloads.spd.data import corpus
from perfsweep.workloads.spd.data.corpus import corpus_file, induction, markov, standard_library
from perfsweep.workloads.spd.data.loading import Plan, by_data_loader, by_mapped_file, on_device
from perfsweep.workloads.spd.data.tokens import BYTE_VOCAB, Rows, decode, read_tokens

CPU = torch.device("cpu")


@pytest.fixture
def rows() -> Rows:
    return Rows(np.arange(22 * 3, dtype=np.uint16).reshape(22, 3), "test")


def plan(rows: Rows, start: int = 0) -> Plan:
    made = Plan(len(rows), 4, seed=3)
    made.start = start
    return made


LOADERS = {
    "torch": lambda rows, plan: by_data_loader(rows, plan, 0, False, False, False),
    "two workers": lambda rows, plan: by_data_loader(rows, plan, 2, False, False, False),
    "stream": lambda rows, plan: by_data_loader(rows, plan, 0, False, True, False),
    "sharded stream": lambda rows, plan: by_data_loader(rows, plan, 2, False, True, True),
    "mapped": lambda rows, plan: by_mapped_file(rows, plan, False),
    "resident": lambda rows, plan: on_device(rows, plan, CPU),
}


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("start", [7, *longer(0, 3)])
def test_every_loader_follows_the_plan_from_any_batch_on(rows, name, start) -> None:
    expected = plan(rows, start).without_end()
    batches = LOADERS[name](rows, plan(rows, start))
    for _ in range(12):  # more than two epochs of five batches
        assert next(batches).values.tolist() == rows.values[next(expected)].tolist()


@pytest.mark.parametrize(("drop", "length", "last"), [(True, 3, 3), (False, 4, 1)])
def test_an_epoch_has_its_rows_once_in_an_order_of_its_own(drop: bool, length: int, last: int) -> None:
    plan = Plan(10, 3, seed=1, drop_last=drop)
    batches = list(plan)
    assert len(plan) == len(batches) == length
    assert len(batches[-1]) == last
    rows = [row for batch in batches for row in batch]
    assert len(set(rows)) == len(rows)
    assert rows == plan.order(0)[: len(rows)].tolist()
    assert plan.order(0).tolist() != plan.order(1).tolist() != Plan(10, 3, seed=2).order(1).tolist()


def test_text_and_arrays_are_read_too(tmp_path) -> None:
    (tmp_path / "t.txt").write_text("grüße")
    assert decode(read_tokens(tmp_path / "t.txt", BYTE_VOCAB).tokens) == "grüße"
    np.save(tmp_path / "t.npy", np.arange(5))
    assert read_tokens(tmp_path / "t.npy", BYTE_VOCAB).tokens.tolist() == list(range(5))


def test_a_chain_has_the_entropy_it_promises() -> None:
    tokens = markov(60_000, 32, branches=4)
    pairs = Counter(zip(tokens[:-1].tolist(), tokens[1:].tolist(), strict=True))
    singles = Counter(tokens[:-1].tolist())
    entropy = -sum(n / (len(tokens) - 1) * math.log(n / singles[a]) for (a, _), n in pairs.items())
    assert entropy == pytest.approx(math.log(4), abs=0.03) or entropy < math.log(4)  # followers may coincide


def test_seeds_decide_corpora_and_the_same_in_every_version() -> None:
    made = (corpus.stories(2000, 1), markov(500, 30, 1), induction(500, 30, 8, 1))
    digests = [hashlib.sha256(tokens.astype("<i8").tobytes()).hexdigest()[:8] for tokens in made]
    assert digests == ["f3a188d4", "54034fe2", "4b13b185"]  # results of sweeps are of these data


def test_a_corpus_is_made_once(tmp_path) -> None:
    first = corpus_file("stories", BYTE_VOCAB, 2000, tmp_path)
    (file,) = tmp_path.glob("*.bin")
    before = file.stat().st_mtime_ns
    assert corpus_file("stories", BYTE_VOCAB, 2000, tmp_path).digest == first.digest
    assert file.stat().st_mtime_ns == before


def test_other_corpora_are_cut_where_there_is_enough(tmp_path, monkeypatch) -> None:
    for name, text in (("b.py", "xyz"), ("a.py", "grüße"), ("c.py", "more"), ("a.txt", "none")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(corpus.sysconfig, "get_path", {"stdlib": str(tmp_path)}.__getitem__)
    assert [decode(standard_library(count)) for count in (9, 10, 12)] == ["grüßexy", "grüßexyz", "grüßexyzmo"]
    runs = induction(38, 9, period=4)
    assert (
        len(runs) == 38 and runs[:32].reshape(4, 2, 4).std(1).max() == 0 < runs[:4].std() and runs.max() < 9
    )
    found = corpus_file("induction", 9, 70, tmp_path)
    assert found.tokens.tolist() == induction(70, 9).tolist() and found.vocab == 9
    assert (tmp_path / "spd-induction-9-70.bin").is_file()
