"""Plans: arms with stable ids, packs with both sides of every pair, balanced and reproducible orders."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from pathlib import Path

import pytest

from perfsweep.pipelines.config.types import ClusterConfig, DesignConfig
from perfsweep.pipelines.plan import packs, plan
from perfsweep.pipelines.plan.arms import Space
from perfsweep.pipelines.store.progress import Progress, StoredTrial
from perfsweep.pipelines.store.records import Kind, Outcome, Pack, TrialRecord
from perfsweep.slurm.site import Shape, SiteProfile
from perfsweep.workloads.api import Device
from perfsweep.workloads.errors import ConfigError, ContractError

CPU = Device()


def test_both_sides_of_every_pair_and_all_references_share_a_pack(command) -> None:
    wide = command(
        DesignConfig("one_at_a_time"),
        cluster=ClusterConfig(arms_per_pack=3),
        references={"naive": {}, "single": {"work": "single"}},
    )
    manifest = plan.make_plan(wide, CPU)
    packs = [set(pack.arms) for pack in manifest.packs]
    assert len(packs) > 3
    for effect in manifest.effects:
        assert any({arm for pair in effect.pairs for arm in pair} <= pack for pack in packs)
    assert all(set(manifest.sweep.references.values()) <= pack for pack in packs)


def test_an_arm_id_changes_with_level_configuration_and_code(command) -> None:
    cls, config = plan.load_workload({"name": "toys.spinner:Spinner"})
    levels = Space(cls.toggles).complete({})
    ids = {
        plan.arm_id("toy", config, levels, "code"),
        plan.arm_id("toy", config, {**levels, "work": "single"}, "code"),
        plan.arm_id(
            "toy", plan.load_workload({"name": "toys.spinner:Spinner", "size": 50})[1], levels, "code"
        ),
        plan.arm_id("toy", config, levels, "other code"),
    }
    assert len(ids) == 4
    assert all(len(name) == 16 for name in ids)


def test_arms_that_fork_share_no_pack_with_one_that_cannot(command) -> None:
    design = DesignConfig("one_at_a_time", toggles=["variable", "work", "group", "half"])
    manifest = plan.make_plan(command(design), CPU)
    label = {arm.id: arm.label for arm in manifest.arms}
    packs = {pack.start: {label[arm] for arm in pack.orders[0]} for pack in manifest.packs}
    assert packs == {
        "fork": {"baseline", "work=single", "half=on"},
        "exec": {"baseline", "variable=on", "group=two"},
    }


@pytest.mark.parametrize(
    ("toggle", "cluster", "said"),
    [
        ("work", {"nodes": 2}, "cluster.nodes=2: no arm of this sweep has more than one rank"),
        ("group", {"ntasks_per_node": 1}, "there is room for 1 ranks on 1 nodes, and an arm has 2"),
    ],
)
def test_nodes_that_ranks_do_not_fit_are_refused(command, toggle: str, cluster: dict, said: str) -> None:
    given = command(DesignConfig("one_at_a_time", toggles=[toggle]))
    for name, value in cluster.items():
        setattr(given.cluster, name, value)
    with pytest.raises(ConfigError, match=said):
        plan.make_plan(given, CPU)


@pytest.mark.parametrize("name", ["", "..", "a/b", "../elsewhere", "x" * 300, "ü" * 150, "a\nb"])
def test_a_name_that_is_not_one_folder_is_refused_with_the_flag_that_moves_sweeps(command, name: str) -> None:
    given = command(DesignConfig("one_at_a_time", toggles=["work"]))
    given.name = name
    with pytest.raises(ConfigError, match=r"name='.*' is no name of one folder; runs=FOLDER says"):
        plan.make_plan(given, CPU)


@pytest.mark.parametrize("arms", [2, 5, 8])
def test_over_a_square_each_arm_follows_each_other_equally_often(arms: int) -> None:
    names = [f"a{i}" for i in range(arms)]
    rows = arms if arms % 2 == 0 else 2 * arms
    orders = packs.balanced_orders(names, rows, "seed")
    follows = Counter(pair for order in orders for pair in itertools.pairwise(order))
    assert set(follows.values()) == {rows // arms}
    assert len(follows) == arms * (arms - 1)


def test_no_round_tells_the_order_of_the_next() -> None:
    """In a square that is not shuffled, each row is the one before, with every arm replaced by the next."""
    orders = packs.balanced_orders([f"a{i}" for i in range(8)], 8, "seed")
    steps = [dict(zip(one, other, strict=True)) for one, other in itertools.pairwise(orders)]
    assert any(step != steps[0] for step in steps)


REFUSALS = [
    ({"workload": "toys.spinner:Spiner"}, ConfigError, "module toys.spinner has no Spiner"),
    ({"workload": "toys.missing:Spinner"}, ConfigError, "module toys.missing cannot be imported"),
    (
        {"workload": "toys.broken_syntax:Broken"},
        ConfigError,
        "module toys.broken_syntax fails when imported: NameError: name 'Workoad'",
    ),
    (
        {"workload": "toys.broken_contract:Broken"},
        ContractError,
        r"broken_contract:Broken breaks the contract: .*evidence\(\) is missing",
    ),
    (
        {"workload": "toys.spinner:Config"},
        ContractError,
        "is no subclass of perfsweep.workloads.api.Workload",
    ),
    ({"toggles": {"wrok": "single"}}, ConfigError, "toggles.wrok is unknown; did you mean work"),
    (
        {"toggles": {"work": "triple"}},
        ConfigError,
        "toggles.work=triple is not a level of work; choose from: double, single",
    ),
    ({"toggles": {"after": "on"}}, ConfigError, "after=on requires work=single, and work is double"),
]


@pytest.mark.parametrize(("changes", "kind", "message"), REFUSALS)
def test_what_cannot_be_planned_is_refused_in_one_sentence(
    command, changes: dict, kind: type, message: str
) -> None:
    with pytest.raises(kind, match=message):
        plan.make_plan(command(DesignConfig("one_at_a_time"), **changes), CPU)


BAD_DESIGNS = [
    (DesignConfig("everything"), "kind everything is unknown; choose from: one_at_a_time, leave_one_out"),
    (
        DesignConfig("one_at_a_time", reference="late"),
        "reference=late is unknown; choose a baseline from: naive",
    ),
    (
        DesignConfig("factorial", levels={"work": ["double", "single"]}),
        "factorial takes two to six toggles, and 1 are given",
    ),
    (DesignConfig("one_at_a_time", toggles=["trouble"], levels={"trouble": ["none"]}), "compares nothing"),
]


@pytest.mark.parametrize(("design", "message"), BAD_DESIGNS)
def test_a_design_that_cannot_be_meant_is_refused(command, design: DesignConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan.make_plan(command(design), CPU)


@pytest.mark.parametrize("how", [{"axes": {"allocator": ["steady"]}}, {"toggles": {"allocator": "steady"}}])
def test_a_sweep_that_names_the_allocator_decides_about_it_in_every_arm(command, how) -> None:
    manifest = plan.make_plan(command(DesignConfig("one_at_a_time"), **how), CPU)
    assert all("allocator" in arm.levels for arm in manifest.arms)
    assert manifest.sweep.measure.allocator == "system", "the baseline's would be undone"
    (pack,) = manifest.packs
    assert pack.start == "exec"


def test_a_design_names_toggles_too(command) -> None:
    design = DesignConfig("one_at_a_time", levels={"allocator": ["steady"], "work": ["single"]})
    manifest = plan.make_plan(command(design), CPU)
    assert sorted(arm.label for arm in manifest.arms) == ["allocator=steady", "baseline", "work=single"]


def test_results_are_kept_of_what_has_any(command) -> None:
    asked = command(workload="toys.jobs:Countdown", keep="~/kept", keep_iterations=7)
    for manifest in (plan.single_arm(asked, CPU), plan.make_plan(replaced(asked, placebo=1), CPU)):
        keep = manifest.sweep.keep
        assert keep is not None and keep.iterations == 7
        assert keep.folder == str(Path("~/kept").expanduser())
    assert plan.single_arm(command(workload="toys.jobs:Countdown"), CPU).sweep.keep is None
    with pytest.raises(ConfigError, match="keep=x: Spinner has nothing to keep"):
        plan.single_arm(command(keep="x"), CPU)


def replaced(asked, **measure: object):
    asked.measure = dataclasses.replace(asked.measure, **measure)
    return asked


def test_placebos_are_copies_of_the_first_reference_in_every_pack(command) -> None:
    asked = command(
        DesignConfig("one_at_a_time"),
        measure={"placebo": 2},
        cluster=ClusterConfig(arms_per_pack=5),
        references={"single": {"work": "single"}, "naive": {}},
    )
    manifest = plan.make_plan(asked, CPU)
    base = manifest.arm(manifest.sweep.references["single"])
    copies = [arm for arm in manifest.arms if arm.placebo]
    assert [(copy.label, copy.placebo, copy.levels) for copy in copies] == [
        ("placebo 1", 1, base.levels),
        ("placebo 2", 2, base.levels),
    ]
    effects = [effect for effect in manifest.effects if effect.design == "placebo"]
    assert [(effect.level, effect.pairs) for effect in effects] == [
        (str(copy.placebo), ((copy.id, base.id),)) for copy in copies
    ]
    assert len(manifest.packs) > 1
    assert all({copy.id for copy in copies} <= set(pack.arms) for pack in manifest.packs)


def test_an_axis_without_a_level_is_refused_and_one_level_is_a_list(command) -> None:
    with pytest.raises(ConfigError, match=r"axes\.work=\[\] names no level; list some, as axes\.work=\[L"):
        plan.make_plan(command(DesignConfig("one_at_a_time"), axes={"work": [], "slab": []}), CPU)
    found = plan.make_plan(command(DesignConfig("one_at_a_time"), axes={"work": "single"}), CPU)
    assert [effect.level for effect in found.effects] == ["single"]


def test_axes_that_are_typed_stand_in_place_of_a_designs_own(command) -> None:
    design = DesignConfig("one_at_a_time", toggles=["sign"], levels={"work": ["single"]})
    found = plan.make_plan(command(design), CPU)
    assert {effect.toggle for effect in found.effects} == {"sign", "work"}
    found = plan.make_plan(command(design, axes={"slab": [4]}), CPU)
    assert {(effect.toggle, effect.level) for effect in found.effects} == {("slab", "4")}


def test_a_sweep_without_designs_or_placebos_has_nothing_to_plan(command) -> None:
    with pytest.raises(ConfigError, match="sweep=toy has no designs; list at least one"):
        plan.make_plan(command(), CPU)
    assert len(plan.make_plan(command(measure={"placebo": 1}), CPU).arms) == 2


BOTH = {"p000": 6, "p001": 6}
PACKS = [Pack(id=id, orders=(("a", "b"),), start="fork") for id in ("p000", "p001")]


class Planned:
    """Of a manifest, what is asked for."""

    packs = PACKS


def trials(*seconds: float) -> Progress:
    progress = Progress()
    for number, took in enumerate(seconds):
        own = {"arm": "a", "kind": Kind.TIMING, "pack": "p000", "round": number, "attempt": 0}
        record = TrialRecord(outcome=Outcome.OK, started=1000.0, ended=1000.0 + took, **own)  # type: ignore[arg-type]
        progress.add(StoredTrial(Path("a"), record))
    return progress


@pytest.mark.parametrize(
    ("todo", "shape", "seconds", "says"),
    [
        (BOTH, Shape(0, 1), (), "at most 2.0 hours"),
        ({"p000": 6, "p001": 0}, Shape(0, 1), (), "at most 1.0 hours"),
        (BOTH, Shape(4, 1, nodes=2), (), "at most 16.0 GPU-hours"),
        (BOTH, Shape(0, 1), (60.0, 90.0, 9000.0), "about 0.6 hours, from the trials that are there"),
        (BOTH, Shape(0, 1), (9000.0,), "about 2.0 hours, from the trials that are there"),
    ],
    ids=["no trial", "a pack is done", "nodes", "the median trial", "never beyond limits"],
)
def test_the_cost_is_that_of_unfinished_packs(
    todo: dict[str, int], shape: Shape, seconds: tuple[float, ...], says: str
) -> None:
    shapes = {pack.id: shape for pack in PACKS}
    site = SiteProfile(time_min=60)
    assert packs.estimated_cost(Planned(), todo, shapes, site, trials(*seconds)) == says  # type: ignore[arg-type]
