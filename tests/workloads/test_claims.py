"""Every claim can be ruled on, by levels that some device can run and figures that something counts.

The only other thing a claim may have is an obstacle, and obstacles are held against the facts of devices.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from pathlib import Path

import pytest

from perfsweep.pipelines import trial
from perfsweep.pipelines.analysis import rulings
from perfsweep.pipelines.analysis.claim_ledger import promise
from perfsweep.pipelines.statistics.claim_rules import SIZE_WORDS, Obstacle
from perfsweep.workloads import registry
from perfsweep.workloads.api import Claim, Device, Workload
from perfsweep.workloads.digits import declaration as digits
from perfsweep.workloads.errors import ConfigError
from perfsweep.workloads.latentwire import claims as latentwire
from perfsweep.workloads.probe1d import claims as probe1d
from perfsweep.workloads.prover import claims as prover
from perfsweep.workloads.spd import claims as spd

ALL = Device(type="cuda", name="big", capability=(9, 0), count=8, memory_bytes=10**12, compiler=True)
DEVICES = {
    "cpu": Device(compiler=True),
    "bare": Device(),
    "old": Device(type="cuda", name="V100", capability=(7, 0), count=1, memory_bytes=16 * 2**30),
    "one": Device(type="cuda", name="H200", capability=(9, 0), count=1, memory_bytes=140 * 2**30),
    "all": ALL,
}
NAMES = sorted(name for name in registry.names() if registry.find(name).claims)
CLAIMS = [
    pytest.param(name, claim, id=f"{name}-{claim.section}-{n}")
    for name in NAMES
    for n, claim in enumerate(registry.find(name).claims)
]


def problems(claim: Claim, cls: type[Workload], counted: str) -> list[str]:
    """What keeps a claim from ever being ruled on; nothing where a sweep on the right device settles it."""
    if rulings.is_rule(claim):
        return []
    found = [] if claim.arms else ["no arm"]
    toggles = {toggle.name: toggle for toggle in cls.toggles}
    for name, value in (item for levels in (*claim.arms, claim.against) for item in levels.items()):
        try:
            toggles[name].level(value)
        except (KeyError, ConfigError):
            found.append(f"{name}={value} is no level")
    fields = {field.name for field in dataclasses.fields(cls.Config)}
    found += [f"{name} is no field of the workload" for name in claim.setting if name not in fields]
    bounded = claim.low is not None or claim.high is not None
    if claim.figure is not None and claim.kind != "predicate":
        found.append(f"{claim.figure} is no bound of a {claim.kind}")
    if claim.kind == "predicate":
        parts = re.split("[+/*]", claim.figure or "nothing")
        known = {*rulings.DERIVED_FIGURES, rulings.RESULTS_KEPT, rulings.WARM_COMPILE_S}
        found += [
            f"nothing counts {part}" for part in parts if part not in known and f'"{part}"' not in counted
        ]
    if claim.kind == "qualitative" or claim.word:
        found += [] if claim.word in SIZE_WORDS else [f"unknown word {claim.word}"]
    elif not bounded:
        found.append("no bounds")
    if not found and (reason := rulings.refusal(claim, cls.toggles, ALL)):
        found.append(f"refused everywhere: {reason}")
    return found


@functools.cache
def counting_sources(cls: type[Workload]) -> str:
    """Sources that count: the workload's own but for its claims, and the generic counters."""
    files = [*registry.sources(cls), *Path(str(trial.__file__)).parent.rglob("*.py")]
    return "".join(file.read_text() for file in files if file.name != "claims.py")


@pytest.mark.parametrize(("workload", "claim"), CLAIMS)
def test_every_claim_has_what_rules_on_it(workload: str, claim: Claim) -> None:
    cls = registry.find(workload)
    assert problems(claim, cls, counting_sources(cls)) == []
    assert claim.section and claim.source and promise(claim) is not None
    assert claim.low != 0, "nothing is counted below it"
    assert claim.word or claim.low is not None or claim.kind != "speedup", "a speed-up has a least one"
    for pieces, whole in ((arm.get("micro_batch"), arm.get("effective_batch")) for arm in claim.arms):
        assert not isinstance(pieces, int) or not isinstance(whole, int) or whole % pieces == 0


@pytest.mark.parametrize("workload", NAMES)
def test_no_claim_is_made_twice(workload: str) -> None:
    claims = registry.find(workload).claims
    assert len({(one.section, one.text, one.kind, str(one.arms)) for one in claims}) == len(claims)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("workload", NAMES)
def test_obstacles_stand_on_the_device_they_are_named_for_and_nothing_is_refused_without_one(
    workload: str, device: str
) -> None:
    facts, cls = DEVICES[device], registry.find(workload)
    for claim in cls.claims:
        found = rulings.obstacles(claim, cls.toggles, facts)
        assert all(obstacle.stands(facts) for obstacle in found), claim.text
        assert bool(found) == (
            rulings.is_rule(claim) or rulings.refusal(claim, cls.toggles, facts) is not None
        ), claim.text
        assert rulings.is_rule(claim) == (Obstacle.A_RULE in found), claim.text


FASTER = Claim("x", "s", "1", ({"amp": "bf16"},), low=2.0)


def test_a_refusal_that_no_fact_bears_out_is_an_obstacle_on_no_device() -> None:
    stubborn = dataclasses.replace(FASTER, unsupported=lambda device: "does not feel like it")
    assert rulings.obstacles(stubborn, (), ALL) == ()
    assert rulings.refusal(stubborn, (), ALL)


def test_several_obstacles_are_all_named() -> None:
    pair = dataclasses.replace(
        FASTER, unsupported=lambda device: None if device.count > 1 and device.type == "cuda" else "x"
    )
    assert rulings.obstacles(pair, (), DEVICES["cpu"]) == (Obstacle.NO_CUDA, Obstacle.ONE_DEVICE)
    assert rulings.obstacles(pair, (), DEVICES["one"]) == (Obstacle.ONE_DEVICE,)
    assert (
        rulings.obstacle_text((Obstacle.NO_CUDA, Obstacle.ONE_DEVICE))
        == "needs a CUDA device and needs several devices"
    )


@pytest.mark.parametrize("workload", NAMES)
def test_what_is_contradicted_contradicts(workload: str) -> None:
    claims = registry.find(workload).claims
    sentences = [sentence for claim in claims for sentence in claim.contradicts.split("; ") if sentence]
    for claim in claims:
        assert claim.contradicts or not any(sentence in claim.text for sentence in sentences), claim.text


UNITS = (1, 1e-3, 60, 3600, 1e6, 1e9, 0.01)
"""Milliseconds, minutes, hours, megabytes, gigabytes and per cent, in what figures are counted in."""
WORDS = {"two": 2.0, "three": 3.0, "almost every": 0.9}
NOT_STATED = {
    "lambda_max_dead": "the largest float32 below the solver's own cap of 1e12",
    "step_ms_slope": "regardless: a tenth at most",
    "warm_compile_s/compile_s": "half at most, where the report says that a cache helps",
    "recompile_s": "what is slower than the size that is warm, which another line has",
    "rows_chosen": "half of the 512 rows at least",
}
"""Figures of predicates whose bounds stand in no text, and where they come from."""


def numbers_of(text: str) -> list[float]:
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", plain)] + [
        number for word, number in WORDS.items() if re.search(rf"\b{word}\b", text)
    ]


def stated(claim: Claim, beside: list[Claim]) -> set[float]:
    """Bounds that a text can mean: its numbers, exact or about so much, and their ratios and rates."""
    own = numbers_of(claim.text)
    others = [number for other in beside for number in numbers_of(other.text)]
    ratios = {a / b for a in others for b in own if b}
    steps = {n + near for n in own for near in (-1, 1) if "step" in claim.text and n.is_integer()}
    found = {n * unit * near for n in {*own, *ratios} for unit in UNITS for near in (0.9, 1, 1.1)}
    shares = {n * near / 100 for n in own for near in (0.9, 1, 1.1)}
    return {0.0, 1.0, *steps, *found, *(1 / (1 - n) for n in shares if n < 1), *(1 / (1 + n) for n in shares)}


def range_of(text: str) -> tuple[float, float] | None:
    """How many times as fast, where a text says from how many to how many, or up to how many."""
    if found := re.search(r"(\d+)-(\d+)x", text):
        return float(found[1]), float(found[2])
    if found := re.search(r"(\d+)-(\d+)%", text):
        return 1 / (1 - float(found[1]) / 100), 1 / (1 - float(found[2]) / 100)
    if found := re.search(r"[Pp]otentially (\d+)x", text):
        return 1.0, float(found[1])
    return (1.0, 3.0) if "up to three times" in text else None


TABLES = {"digits": digits, "latentwire": latentwire, "probe1d": probe1d, "prover": prover, "spd": spd}


@pytest.mark.parametrize("workload", TABLES)
def test_the_bounds_of_a_claim_are_what_its_text_says(workload: str) -> None:
    assert sorted(TABLES) == NAMES
    claims, toggles = TABLES[workload].CLAIMS, registry.find(workload).toggles
    declared = {toggle.name: {level.value for level in toggle.levels} for toggle in toggles}
    written = {number for claim in claims for number in numbers_of(claim.text)}
    for claim in claims:
        chosen = {item for arm in (*claim.arms, claim.against) for item in arm.items()}
        assert all(value in declared[name] or value in written for name, value in chosen), claim
        if claim.kind == "speedup" and claim.word is None and (said := range_of(claim.text)):
            assert (claim.low, claim.high) == pytest.approx(said), claim
        beside = [other for other in claims if other.section == claim.section]
        for bound in (claim.low, claim.high):
            if bound is not None and claim.figure not in NOT_STATED:
                means = stated(claim, beside)
                assert any(math.isclose(bound, one, rel_tol=1e-9, abs_tol=1e-11) for one in means), claim


@pytest.mark.parametrize(
    ("device", "says"),
    [
        (Device(), "CUDA"),
        (Device("cuda", count=1), "4 H100"),
        (Device("cuda", count=2), None),
        (Device("cuda", count=4), None),
    ],
    ids=["host", "one", "two", "four"],
)
def test_a_figure_of_several_gpus_needs_several(device: Device, says: str | None) -> None:
    reason = latentwire._needs_their_gpus(device)
    assert reason is None if says is None else says in (reason or "")
