"""The teacher, its cache, and the mistakes that upstream's positions and pads led to."""

from __future__ import annotations

import pytest
import torch
from bare_arms import bare, with_model

from perfsweep.workloads.latentwire.data import batches, cache
from perfsweep.workloads.latentwire.data.batches import Prompts
from perfsweep.workloads.latentwire.data.row_layout import Row
from perfsweep.workloads.latentwire.maths.attention import KERNELS
from perfsweep.workloads.latentwire.maths.lm import CausalLM, LayerPath, Path
from perfsweep.workloads.latentwire.presets import LMS

PAD, K = 7, 3
ROWS = [Row([1, 7, 2, 7, 3], [9, 8, 7]), Row([1, 7, 4], [5, 7]), Row([1, 7, 6, 2, 2, 7, 2, 5], [4, 4, 4, 7])]
HEADER = [1, 7]


def build(attend="sdpa") -> CausalLM:
    lm = CausalLM(LMS["nano-l"], torch.Generator().manual_seed(0), torch.float64)
    lm.path = Path(LayerPath(KERNELS[attend]))
    return lm


def prompts(rows=ROWS, pad=PAD) -> Prompts:
    ids, positions, lengths = batches.prompt_ids(rows, K, pad)
    return Prompts(ids, positions, torch.arange(len(rows)), lengths, tuple(range(len(rows))))


def teacher(level="recompute", lm=None, last_block="full", states=False):
    """Asks the model of an arm of a level; and the arm."""
    made = bare({"teacher": level, "last_block": last_block}, early_tokens=K, state_kd=states)
    model = with_model(made, lm or build(), header=HEADER)
    return lambda prompts: made.teach(model, prompts), made


def logits(level="recompute", rows=ROWS, pad=PAD, **options) -> torch.Tensor:
    return teacher(level, **options)[0](prompts(rows, pad)).logits


PRUNED = {"last_block": "pruned"}


@pytest.mark.parametrize(
    ("level", "options"), [("slice", {}), ("slice_header", {}), ("slice_header", PRUNED), ("slice", PRUNED)]
)
def test_every_level_gives_the_whole_pass_where_it_is_read(level, options) -> None:
    found = logits(level, **options)
    assert torch.allclose(found, logits(), atol=1e-12)


@pytest.mark.parametrize(
    ("level", "options"), [("recompute", {}), ("slice", {}), ("slice_header", {}), ("slice_header", PRUNED)]
)
def test_states_of_the_layers_are_kept_where_they_are_asked_for(level, options) -> None:
    kept, none = (teacher(level, states=states, **options)[0](prompts()).states for states in (True, False))
    whole = teacher(states=True)[0](prompts()).states
    assert len(kept) == len(whole) > 0 and none == []
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in zip(kept, whole, strict=True))


@pytest.mark.parametrize("level", ["recompute", "slice", "slice_header"])
def test_a_row_does_not_depend_on_its_mates(level) -> None:
    """Upstream padded prompts right, answers behind the pads: the teacher's view depended on the batch."""
    together = logits(level)
    for number, row in enumerate(ROWS):
        assert torch.allclose(logits(level, [row])[0], together[number], atol=1e-12)
    longest = len(ROWS[2].scaffold)
    behind_pads = [Row([*row.scaffold, *[PAD] * (longest - len(row.scaffold))], row.answer) for row in ROWS]
    assert not torch.allclose(logits(level, behind_pads)[0], together[0], atol=1e-3)


def test_positions_come_from_stored_lengths_where_pads_stand_in_the_prompt() -> None:
    """Where the pad is the end of a turn, counting ids that are no pads finds earlier positions."""
    found = prompts().positions
    assert found[:, 0].tolist() == [len(row.scaffold) - 1 for row in ROWS]
    counted = torch.tensor([sum(token != PAD for token in row.scaffold) - 1 for row in ROWS])
    assert not torch.equal(found[:, 0], counted)


def test_another_pad_changes_nothing() -> None:
    assert torch.equal(logits(pad=PAD), logits(pad=0))


def test_predictive_positions_see_the_answer_so_far() -> None:
    changed = [Row(row.scaffold, [row.answer[0], 100, *row.answer[2:]]) for row in ROWS]
    before, after = logits(), logits(rows=changed)
    assert torch.equal(before[:, :2], after[:, :2])
    assert not torch.equal(before[:, 2], after[:, 2])


def hidden_cache(folder, rows=3) -> cache.TeacherCache:
    return cache.TeacherCache(folder, (rows, K, 64), torch.float64)


def test_a_cache_gives_what_was_computed_also_after_a_restart(tmp_path) -> None:
    fresh = logits()
    for _ in range(2):
        lm = build()
        ask, made = teacher("cache_h", lm)
        made.caches[0] = hidden_cache(tmp_path)
        assert torch.allclose(ask(prompts()).logits, fresh, atol=1e-12)
    assert lm.chosen.counts["teacher_rows"] == 0  # the second came from disk


def test_other_weights_or_data_find_no_cache(start, tmp_path) -> None:
    folders = []
    for seed, data_seed, early in ((0, 0, "text"), (0, 1, "text"), (0, 0, "none")):
        workload = start({"teacher": "cache_h"}, cache=tmp_path, data_seed=data_seed, anchor=early, seed=seed)
        folders.append(workload.arm.caches[0].folder)
    assert len(set(folders)) == 3
    lm = build()
    before = cache.weights_key(list(lm.named_parameters()))
    with torch.no_grad():
        lm.layers[1].down.matrix[3, 5] += 1e-3
    assert cache.weights_key(list(lm.named_parameters())) != before


def test_the_cost_of_building_is_shown_by_whoever_finds_it_built(start, tmp_path) -> None:
    first = start({"teacher": "cache_h"}, cache=tmp_path)
    second = start({"teacher": "cache_h"}, cache=tmp_path)
    costs = [workload.evidence().numbers["teacher_build_s"] for workload in (first, second)]
    assert costs[0] == costs[1] > 0
    assert start().evidence().numbers["teacher_build_s"] == 0


def test_another_anchor_or_template_is_another_token_cache(start, tmp_path) -> None:
    """Upstream's key lacked both, and served prompts of another template."""
    template = "{system} {user} now answer: "
    for config in ({}, {"anchor": "chat"}, {"chat_template": template}):
        start({"tokenise": "cache"}, cache=tmp_path, models=1, **config)
    assert len(list(tmp_path.glob("latentwire-tokens-*"))) == 3
    start({"tokenise": "cache"}, cache=tmp_path, models=1)
    assert len(list(tmp_path.glob("latentwire-tokens-*"))) == 3


def test_rows_that_a_cache_has_run_no_more_and_the_head_alone_is_applied(tmp_path) -> None:
    lm = build()
    ask, made = teacher("cache_h", lm)
    made.caches[0] = cache.TeacherCache(tmp_path / "t", (3, K, 64), torch.float64)
    some = prompts()
    part = Prompts(some.ids[:2], some.positions[:2], some.numbers[:2], some.lengths[:2], some.index[:2])
    made.prepare(made.models[0], part)
    assert lm.chosen.counts["teacher_rows"] == 2
    assert torch.allclose(ask(some).logits, logits(), atol=1e-12)
    assert (lm.chosen.counts["teacher_rows"], lm.chosen.counts["teacher_head_rows"]) == (3, 9)
    made.prepare(made.models[0], some)
    assert torch.allclose(ask(some).logits, logits(), atol=1e-12)
    assert (lm.chosen.counts["teacher_rows"], lm.chosen.counts["teacher_head_rows"]) == (3, 18)
