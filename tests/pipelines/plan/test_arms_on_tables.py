"""The four field reports' tables, planned: closures, refusals, best arms and designs as the reports mean."""

from __future__ import annotations

import itertools
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import latentwire, probe1d, prover, spd

from perfsweep.pipelines.plan import designs
from perfsweep.pipelines.plan.arms import Space
from perfsweep.workloads.api import Claim, Device, Levels, LevelValue
from perfsweep.workloads.errors import ConfigError

TABLES: dict[str, ModuleType] = {"probe1d": probe1d, "spd": spd, "prover": prover, "latentwire": latentwire}

FOUR_GPUS = Device(type="cuda", count=4, name="H200", capability=(9, 0))

# Levels that no arm on top of the naive path can have, with the word that says why.
OUT_OF_REACH: dict[tuple[str, str, LevelValue], str] = {
    ("spd", "gradients", "formulas"): "formulas are those of a toy",
    ("spd", "gradients", "native"): "formulas are those of a toy",
}

# Levels that are the baseline wherever they are legal: an arm of their own would be compared with itself.
NO_EFFECT: set[tuple[str, str, LevelValue]] = {("probe1d", "consistent_stop", "mismatch")}

# The search and the size it chooses need each other, so they come and go together.
TOGETHER: dict[tuple[str, str, LevelValue], set[str]] = {
    ("prover", "slab_size", "auto"): {"slab_size", "slab_search"},
    ("prover", "slab_search", "ladder"): {"slab_size", "slab_search"},
}


def space(table: str, **config: Any) -> Space:
    return Space(TABLES[table].TOGGLES, TABLES[table].Config(**config))


EVERY_LEVEL = [
    pytest.param(table, toggle.name, level.value, id=f"{table}-{toggle.name}-{level.value}")
    for table, module in TABLES.items()
    for toggle in module.TOGGLES
    for level in toggle.levels[1:]
]

NAMED_ARMS = [
    pytest.param(table, arm, id=f"{table}-{name}")
    for table, module in TABLES.items()
    for name, arm in {"best": module.BEST, **module.REFERENCES, **getattr(module, "PRESETS", {})}.items()
]

FORBIDDEN = [
    pytest.param(table, arm, word, id=f"{table}-{number}-{word}")
    for table, module in TABLES.items()
    for number, (arm, word) in enumerate(module.FORBIDDEN)
]

REFUSED_BY_CONFIG = [
    pytest.param(table, config, arm, word, id=f"{table}-{number}-{word}")
    for table, module in TABLES.items()
    for number, (config, arm, word) in enumerate(module.REFUSED_BY_CONFIG)
]

COMBINED_CLAIMS = [
    pytest.param(table, claim, arm, id=f"{table}-{claim.section}-{number}")
    for table, module in TABLES.items()
    for claim in module.CLAIMS
    for number, arm in enumerate(claim.arms)
    if len(arm) > 1 or claim.against
]


def moved(here: Space, arm: Levels, base: Levels) -> set[str]:
    """Toggles that were chosen differently; a baseline that follows another toggle is not chosen."""
    chosen, before = here.choices(arm), here.choices(base)
    return {name for name in arm if chosen.get(name) != before.get(name)}


@pytest.mark.parametrize("table", TABLES)
def test_the_naive_path_is_legal(table: str) -> None:
    naive = space(table).legal({})
    assert space(table).choices(naive) == {}


@pytest.mark.parametrize("table, toggle, level", EVERY_LEVEL)
def test_every_level_is_reached_from_the_naive_path(table: str, toggle: str, level: LevelValue) -> None:
    here = space(table)
    if word := OUT_OF_REACH.get((table, toggle, level)):
        with pytest.raises(ConfigError, match=word):
            here.closure({toggle: level})
        return
    arm = here.closure({toggle: level})
    assert arm[toggle] == level
    assert here.problems(arm) == []


@pytest.mark.parametrize("table, toggle, level", EVERY_LEVEL)
def test_the_base_of_a_level_keeps_what_the_level_requires(
    table: str, toggle: str, level: LevelValue
) -> None:
    """Otherwise what a required level buys would be credited to the one that needs it."""
    if (table, toggle, level) in OUT_OF_REACH:
        return
    here = space(table)
    arm = here.closure({toggle: level})
    base = here.without(arm, toggle)
    assert here.problems(base) == []
    expected = (
        set() if (table, toggle, level) in NO_EFFECT else TOGETHER.get((table, toggle, level), {toggle})
    )
    assert moved(here, arm, base) == expected


@pytest.mark.parametrize(
    "table, config, toggle, level",
    [
        ("spd", {"microbatches": 2}, "micro_batch", "whole"),
        ("spd", {"preset": "tms_5-2_test"}, "gradients", "formulas"),
        ("spd", {"preset": "tms_5-2_test"}, "gradients", "native"),
    ],
)
def test_a_configuration_opens_what_it_closes_elsewhere(
    table: str, config: dict[str, Any], toggle: str, level: LevelValue
) -> None:
    here = space(table, **config)
    assert here.problems(here.closure({toggle: level})) == []


@pytest.mark.parametrize("half", [{"amp": "bf16"}, {"amp": "fp16"}, {"lm_dtype": "bf16"}])
def test_fused_attention_is_legal_beside_any_16_bit_choice(half: dict[str, LevelValue]) -> None:
    here = space("latentwire")
    assert here.closure({"attn": "flash"}, onto=here.legal(half))["attn"] == "flash"


def test_a_requirement_that_several_toggles_can_meet_is_met_by_the_first_that_may_move() -> None:
    here = space("latentwire")
    assert here.closure({"attn": "flash"})["lm_dtype"] == "bf16"
    assert here.closure({"attn": "flash", "lm_dtype": "fp32"})["amp"] == "bf16"
    with pytest.raises(ConfigError, match=r"attn=flash requires lm_dtype=bf16 or amp=bf16\|fp16"):
        here.closure({"attn": "flash", "lm_dtype": "fp32", "amp": "off"})


@pytest.mark.parametrize("table, arm", NAMED_ARMS)
def test_best_arms_references_and_presets_are_legal_as_written(
    table: str, arm: dict[str, LevelValue]
) -> None:
    found = space(table).legal(arm)
    assert found == space(table).closure(arm)


@pytest.mark.parametrize("table, arm, word", FORBIDDEN)
def test_a_forbidden_combination_is_refused_in_words(
    table: str, arm: dict[str, LevelValue], word: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        space(table).legal(arm)
    assert word in str(refusal.value)
    assert any(name in str(refusal.value) for name in arm)


@pytest.mark.parametrize("table, config, arm, word", REFUSED_BY_CONFIG)
def test_a_configuration_refuses_levels_by_name(
    table: str, config: Any, arm: dict[str, LevelValue], word: str
) -> None:
    here = Space(TABLES[table].TOGGLES, config)
    with pytest.raises(ConfigError, match=word):
        here.legal(arm)


@pytest.mark.parametrize("table, config, arm, word", [case for case in REFUSED_BY_CONFIG if case.values[2]])
def test_what_a_configuration_refuses_is_legal_under_the_others(
    table: str, config: Any, arm: dict[str, LevelValue], word: str
) -> None:
    """The configuration is the reason, not the levels."""
    assert space(table).legal(arm)


@pytest.mark.parametrize("table", TABLES)
def test_each_toggle_can_be_left_out_of_the_best_arm(table: str) -> None:
    here = space(table)
    best = here.legal(TABLES[table].BEST)
    for name in TABLES[table].BEST:
        arm = here.without(best, name)
        assert here.problems(arm) == []
        assert arm[name] == here.toggle(name).baseline(arm, here.device)
        # What goes with it goes because it needs it, never by accident: it cannot be put back.
        for other in moved(here, best, arm) - {name}:
            with pytest.raises(ConfigError):
                here.legal({**here.choices(arm), other: best[other]})


@pytest.mark.parametrize("table, claim, arm", COMBINED_CLAIMS)
def test_a_combination_is_claimed_with_all_it_needs(
    table: str, claim: Claim, arm: dict[str, LevelValue]
) -> None:
    """Rulings match claims by the levels that set an arm apart, so a closure must have nothing to add."""
    here = space(table)
    assert here.choices(here.closure(claim.against)) == dict(claim.against)
    written = {**claim.against, **arm}
    assert here.choices(here.closure(written)) == written


@pytest.mark.parametrize("table", TABLES)
def test_one_at_a_time_measures_every_level_that_can_act(table: str) -> None:
    here = space(table)
    found = designs.one_at_a_time(here, here.legal({}))
    measured = {(effect.toggle, effect.level) for effect in found.effects}
    levels = {(toggle.name, level.value) for toggle in TABLES[table].TOGGLES for level in toggle.levels[1:]}
    closed = {(toggle, level) for name, toggle, level in (*OUT_OF_REACH, *NO_EFFECT) if name == table}
    assert measured == {(toggle, str(level)) for toggle, level in levels - closed}
    assert {(r.toggle, r.level) for r in found.refused} == {
        (toggle, str(level)) for name, toggle, level in OUT_OF_REACH if name == table
    }


@pytest.mark.parametrize("table", TABLES)
def test_leave_one_out_measures_every_toggle_of_the_best_arm(table: str) -> None:
    found = designs.leave_one_out(space(table), TABLES[table].BEST)
    assert {effect.toggle for effect in found.effects} == set(TABLES[table].BEST)
    assert found.refused == ()


@pytest.mark.parametrize("table", [table for table, module in TABLES.items() if module.CHAIN])
@pytest.mark.parametrize("reference", ["first", "last"])
def test_a_chain_climbs_from_each_reference_to_all_its_steps(table: str, reference: str) -> None:
    module, here = TABLES[table], space(table)
    names = list(module.REFERENCES)
    name = {"first": names[0], "last": names[-1]}[reference]
    start = here.legal(module.REFERENCES[name])
    found = designs.chain(here, start, name, [dict([step]) for step in module.CHAIN])
    top = found.effects[-1].pairs[0][0]
    assert dict(module.CHAIN).items() <= top.items()
    for before, after in itertools.pairwise(found.effects[:-1]):
        assert after.pairs[0][1] == before.pairs[0][0]


def test_the_chain_of_probe1d_moves_one_toggle_a_step_from_the_repaired_stop() -> None:
    here = space("probe1d")
    start = here.legal(probe1d.REFERENCES["fixed_stop"])
    found = designs.chain(here, start, "fixed_stop", [dict([step]) for step in probe1d.CHAIN])
    assert [effect.toggle for effect in found.effects] == [name for name, _ in probe1d.CHAIN[1:]] + [
        "all steps"
    ]
    assert all(effect.also == () for effect in found.effects[:-1])


@pytest.mark.parametrize(
    "table, reference, axes",
    [
        (
            "probe1d",
            {"solver": "late", "label_free": "on", "csc_layout": "on"},
            ("compile", "warm_start", "no_sync_log"),
        ),
        ("spd", {"patching": "wrapper"}, ("delta=folded", "compile=full", "amp=bf16", "pgd_inner=detached")),
        ("prover", {"slab_size": 512}, ("refill=queue", "fact_index=csr", "policy_rows=ragged")),
        ("latentwire", {}, ("lm_dtype=bf16", "logits=slice", "optimizer=fused")),
    ],
)
def test_a_factorial_without_conflicts_is_complete(
    table: str, reference: dict[str, LevelValue], axes: tuple[str, ...]
) -> None:
    here = space(table)
    chosen = {name: [value or "on"] for name, _, value in (axis.partition("=") for axis in axes)}
    found = designs.factorial(here, here.legal(reference), chosen)
    assert found.refused == ()
    mains = [effect for effect in found.effects if not effect.contrast]
    assert [len(effect.pairs) for effect in mains] == [2 ** (len(axes) - 1)] * len(axes)
    assert len(found.effects) - len(mains) == len(axes) * (len(axes) - 1) / 2


def test_a_factorial_leaves_out_what_cannot_go_together() -> None:
    here = space("prover")
    axes = {"compile": ["default"], "policy_rows": ["ragged"], "rule_pairs": ["ragged"]}
    found = designs.factorial(here, here.legal({}), axes)
    # Compiled with either kind of ragged rows: three of the eight corners.
    *corners, interactions = found.refused
    assert len(corners) == 3
    assert all("compile=default" in refusal.reason for refusal in corners)
    assert interactions.toggle == "interactions" and "5 legal arms" in interactions.reason


@pytest.mark.parametrize(
    "table, toggle, sizes",
    [
        ("probe1d", "slab_size", [32, 1, 8, 4]),
        ("prover", "slab_size", [1024, 8, 16, 512, 64]),
        ("latentwire", "micro_batch", [64, 8, 16, 32]),
    ],
)
def test_a_ladder_climbs_numbers_in_order(table: str, toggle: str, sizes: list[int]) -> None:
    here = space(table)
    found = designs.ladder(here, here.legal({}), {toggle: sizes})
    rungs = [int(effect.level) for effect in found.effects]
    assert rungs == [size for size in sorted(sizes) if size != here.toggle(toggle).levels[0].value]


def test_several_gpus_change_the_naive_path_of_latentwire_alone() -> None:
    for table, module in TABLES.items():
        naive = Space(module.TOGGLES, module.Config(), FOUR_GPUS).legal({})
        expected = {"parallel": "layer_split"} if table == "latentwire" else {}
        assert {
            name: value for name, value in naive.items() if value != space(table).legal({})[name]
        } == expected


@pytest.mark.parametrize("table", TABLES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_is_asked_for_is_legal_in_the_end_or_refused(table: str, data: st.DataObject) -> None:
    """Up to four levels drawn at random: the closure has them and breaks no rule, or says why it cannot."""
    here = space(table)
    names = data.draw(st.lists(st.sampled_from(sorted(here.toggles)), max_size=4, unique=True))
    asked = {
        name: data.draw(st.sampled_from([level.value for level in here.toggles[name].levels]))
        for name in names
    }
    try:
        arm = here.closure(asked)
    except ConfigError as error:
        assert any(name in str(error) for name in asked)
        return
    assert asked.items() <= arm.items()
    assert here.problems(arm) == []
    assert here.closure(arm) == arm
