"""What a check makes of its trials: which defects it tells, what it leaves out, and what is no defect."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from toys.defective import Sound

from perfsweep.pipelines.check import checked as module
from perfsweep.pipelines.check.checked import Checked, plan_check
from perfsweep.pipelines.check.rules import Defect
from perfsweep.pipelines.config.composition import compose
from perfsweep.pipelines.config.types import MeasureConfig, RunCommand
from perfsweep.pipelines.store.progress import StoredTrial
from perfsweep.pipelines.store.records import (
    Arm,
    Failure,
    Kind,
    Manifest,
    Outcome,
    TrialRecord,
    read_spec,
    write_evidence,
)
from perfsweep.workloads.api import Device, Evidence
from perfsweep.workloads.errors import ConfigError, RecordError

RAISED = Failure(type="ValueError", message="no such shape", where="train.py:3")


class Told:
    """Stands where packs run trials: `says` takes an arm's label, the kind and the iterations of evidence.

    It returns fields of the record, and `values` of evidence, which without them shows how far it came.
    """

    def __init__(self, says: Callable[[str, Kind, int], dict[str, Any]], folder: Path) -> None:
        self.says, self.folder, self.asked = says, folder, list[tuple[str, str, int]]()
        self.shared = list[Path]()

    def __call__(self, sweep: Any, manifest: Any, pack: Any) -> Any:
        return self.pack(pack, manifest.sweep.measure.evidence_iterations)

    def pack(self, pack: Any, iterations: int) -> Any:
        return SimpleNamespace(
            pack=pack,
            progress=SimpleNamespace(),
            again=lambda arm, kind: self.trial(arm, kind, iterations),
            iterating=lambda number: self.pack(pack, number),
            share_imports=self.shared.append,
        )

    def trial(self, arm: Arm, kind: Kind, iterations: int) -> StoredTrial:
        self.asked.append((arm.label, kind.value, iterations))
        fields = dict(self.says(arm.label, kind, iterations))
        values = np.array(fields.pop("values", [1.0, float(iterations)]))
        place = self.folder / str(len(self.asked))
        place.mkdir()
        (place / "log.txt").write_text(f"log of {arm.label}, {kind.value}\n")
        own = {"outcome": Outcome.OK, "pack": "p000", "round": None, "attempt": 0, **fields}
        write_evidence(place, Evidence({"x": values, "sums": values}))
        (place / "record.json").touch()
        return StoredTrial(place, TrialRecord(arm=arm.id, kind=kind, **own))


BOTH = {"halves=on": {"products": 2.0, "ops": 9.0}, "rounded=on": {"products": 1.0, "ops": 8.0}}


def sound(label: str, kind: Kind, iterations: int) -> dict[str, Any]:
    """Each level changes what it should, and nothing differs beyond its class."""
    if kind is not Kind.COUNTING:
        return {}
    return {"counters": BOTH.get(label, {"products": 1.0, "ops": 7.0, "host_reads": 3.0})}


def where(label: str, **fields: Any) -> Callable[[str, Kind, int], dict[str, Any]]:
    """Sound but for the trials of one arm."""
    return lambda arm, kind, iterations: {**sound(arm, kind, iterations), **(fields if arm == label else {})}


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Checked, Told]]:
    """Makes a check of a workload of two toggles, whose trials end as `says` says."""

    def make(
        says: Callable[[str, Kind, int], dict[str, Any]] = sound,
        workload: str = "Sound",
        measure: Mapping[str, Any] = MappingProxyType({}),
        **probe: Any,
    ) -> tuple[Checked, Told]:
        (tmp_path / "trials").mkdir()
        told = Told(says, tmp_path / "trials")
        monkeypatch.setattr(module, "PackRun", told)
        command = RunCommand(
            workload={"name": f"toys.defective:{workload}"},
            measure=MeasureConfig(**measure),
            runs=str(tmp_path / "runs"),
        )
        folder = tmp_path / "check"
        found = Checked(command, folder, Device(), plan_check(command, Device(), measure))
        (folder / "probe").mkdir()
        (folder / "probe/answer.json").write_text(json.dumps({"leaks": [], "reads": [], **probe}))
        return found, told

    return make


def told(checked: Checked) -> list[tuple[Defect, str, str]]:
    return [(one.defect, one.subject, one.text) for one in checked.findings()]


NAME = "toys.defective:Sound"


def test_a_sound_workload_has_no_defect_and_every_level_was_compared(check, tmp_path: Path) -> None:
    checked, trials = check()
    assert told(checked) == []
    assert len([*tmp_path.glob("trials/*/record.json")]) == 6, "evidence of the baseline is asked for again"
    assert (checked.compared, checked.left_out, checked.choices) == (2, {}, {})
    assert checked.trials == len(trials.asked) == checked.trials_ahead == 2 * 3 + 4
    assert len(trials.shared) == 1, "what the baseline's set-up imports is imported once"
    assert checked.keep_log() is None


def test_a_baseline_that_fails_is_all_that_is_told(check, tmp_path: Path) -> None:
    checked, trials = check(where("baseline", outcome=Outcome.FAILED, failure=RAISED))
    text = "ValueError: no such shape (train.py:3)"
    assert told(checked) == [(Defect.FAILS, f"{NAME}, baseline, evidence trial", text)]
    assert len(trials.asked) == 1
    log = checked.keep_log()
    assert log == tmp_path / "runs/check-toys.defective-Sound/log.txt"
    assert log.read_text() == "log of baseline, evidence\n"


def test_a_baseline_that_cannot_act_here_says_why(check) -> None:
    failure = Failure(type="UnsupportedHere", message="needs a GPU")
    checked, _ = check(where("baseline", outcome=Outcome.UNSUPPORTED, failure=failure))
    assert told(checked) == [(Defect.FAILS, f"{NAME}, baseline", "it cannot act here: needs a GPU")]
    assert checked.keep_log() is None


def test_a_baseline_that_needs_more_time_is_no_defect(check) -> None:
    checked, _ = check(where("baseline", outcome=Outcome.TIMEOUT))
    with pytest.raises(ConfigError) as refused:
        list(checked.findings())
    assert str(refused.value) == (
        f"{NAME}: the baseline did not end within 120 s (measure.timeout_s); give it more with"
        " measure.timeout_s=600"
    )


@pytest.mark.parametrize(
    ("fields", "left_out"),
    [
        ({"outcome": Outcome.UNSUPPORTED, "failure": RAISED}, "no such shape"),
        ({"outcome": Outcome.TIMEOUT}, "did not end within 120 s"),
    ],
)
def test_a_level_that_cannot_act_or_needs_more_time_is_left_out_with_its_reason(
    check, fields: dict, left_out: str
) -> None:
    checked, trials = check(where("halves=on", **fields))
    assert told(checked) == []
    assert list(checked.left_out) == ["halves=on"] and checked.left_out["halves=on"].startswith(left_out)
    assert checked.compared == 1
    assert sum(label == "halves=on" for label, _, _ in trials.asked) == 1


@pytest.mark.parametrize(
    ("kind", "failure", "text", "compared"),
    [
        (Kind.EVIDENCE, RAISED, "ValueError: no such shape (train.py:3)", 1),
        (Kind.COUNTING, None, "it ended as failed", 2),
    ],
)
def test_a_level_that_fails_is_told_by_its_trial(
    check, kind: Kind, failure, text: str, compared: int
) -> None:
    def says(arm: str, of: Kind, iterations: int) -> dict[str, Any]:
        broken = arm == "halves=on" and of is kind
        own = {"outcome": Outcome.FAILED, "failure": failure} if broken else {}
        return {**sound(arm, of, iterations), **own}

    checked, _ = check(says)
    assert told(checked) == [(Defect.FAILS, f"{NAME}, halves=on, {kind.value} trial", text)]
    assert checked.compared == compared
    log = checked.keep_log()
    assert log is not None and log.read_text() == f"log of halves=on, {kind.value}\n"


def test_a_trial_that_succeeded_and_then_fails_ends_the_check(check) -> None:
    seen = list[str]()

    def says(arm: str, kind: Kind, iterations: int) -> dict[str, Any]:
        seen.append(kind.value)
        again = seen.count("evidence") == 2 and kind is Kind.EVIDENCE
        return {
            **sound(arm, kind, iterations),
            **({"outcome": Outcome.OOM, "failure": RAISED} if again else {}),
        }

    checked, _ = check(says)
    with pytest.raises(
        RecordError, match=f"{NAME}: the same trial succeeded before and now fails: ValueError"
    ):
        list(checked.findings())


def unlike(*after: float, early: bool = False) -> Callable[[str, Kind, int], dict[str, Any]]:
    """The baseline's evidence trials end with these values in their order, the last one from then on."""
    left = list(after)

    def says(arm: str, kind: Kind, iterations: int) -> dict[str, Any]:
        values = {}
        if arm == "baseline" and kind is Kind.EVIDENCE and (iterations > 1 or early):
            values = {"values": [1.0, left.pop(0) if len(left) > 1 else left[0]]}
        return {**sound(arm, kind, iterations), **values}

    return says


def test_what_does_not_repeat_is_told_and_results_of_its_levels_are_not_judged(check) -> None:
    checked, trials = check(
        unlike(12.0, 12.0, 77.0, 12.0), leaks=[f"{module.trials.ELSEWHERE}: x", "a thread"]
    )
    found = told(checked)
    assert [defect for defect, _, _ in found] == [Defect.NOT_REPEATABLE, Defect.STATE_LEAKS]
    assert "after some iterations, so look at step()" in found[0][2]
    assert found[1][2].startswith("a thread; ")
    assert sum(iterations == 1 for _, _, iterations in trials.asked) == 2, "an early one more tells which"


@pytest.mark.parametrize(
    ("fields", "defects"),
    [
        ({"counters": {"products": 1.0, "ops": 9.0}}, [Defect.NOTHING_CHANGES]),
        ({"keys": {"data": "other"}}, [Defect.DATA_CHANGE]),
        ({"values": [1.0, 99.0]}, [Defect.RESULTS_CHANGE]),
        (
            {"values": [1.0, 99.0], "keys": {"data": "other"}, "counters": {}},
            [Defect.NOTHING_CHANGES, Defect.DATA_CHANGE, Defect.RESULTS_CHANGE],
        ),
    ],
)
def test_a_level_is_held_against_its_base(check, fields: dict, defects: list) -> None:
    checked, _ = check(where("halves=on", **fields))
    found = told(checked)
    assert [(defect, subject) for defect, subject, _ in found] == [(one, "halves=on") for one in defects]
    assert checked.compared == 2


@pytest.mark.parametrize(("value", "defects"), [(12.0, [Defect.NOTHING_CHANGES]), (12.01, [])])
def test_a_level_without_a_witness_must_change_a_counter_or_a_result(
    check, value: float, defects: list
) -> None:
    own = {"counters": sound("baseline", Kind.COUNTING, 4)["counters"], "values": [1.0, value]}
    checked, _ = check(where("rounded=on", **own))
    assert [(defect, subject) for defect, subject, _ in told(checked)] == [
        (one, "rounded=on") for one in defects
    ]


def test_a_level_that_draws_at_random_is_left_to_a_sweep(check) -> None:
    checked, _ = check(workload="Drawn")
    assert told(checked) == [] and checked.compared == 1
    assert checked.left_out["rounded=on"].endswith("takes several seeds: a sweep runs them")


def test_results_in_another_form_are_a_choice(check) -> None:
    checked, _ = check(where("halves=on", values=[[1.0], [12.0]]))
    assert told(checked) == []
    assert list(checked.choices) == ["halves=on"]
    assert checked.choices["halves=on"].startswith("evidence x has shape [2, 1], and [2] in the base")


@pytest.mark.parametrize(("without", "defects"), [(3.0, [Defect.HOST_READS]), (2.0, [])])
def test_reads_of_the_step_are_told_unless_a_level_does_without(check, without: float, defects: list) -> None:
    def says(arm: str, kind: Kind, iterations: int) -> dict[str, Any]:
        found = sound(arm, kind, iterations)
        reads = without if arm == "halves=on" else 3.0
        return {"counters": {**found["counters"], "host_reads": reads}} if found else {}

    checked, _ = check(says, reads=["train.py:1"])
    assert [defect for defect, _, _ in told(checked)] == defects


@pytest.mark.parametrize(("products", "defect"), [({8: 2.0}, False), ({}, True)])
def test_a_number_that_does_nothing_is_a_choice_where_another_number_acts(
    check, products: dict, defect: bool
) -> None:
    def says(arm: str, kind: Kind, iterations: int) -> dict[str, Any]:
        number = int(arm.rpartition("(")[2].rstrip(")")) if "(" in arm else 16
        return {"counters": {"products": products.get(number, 1.0)}} if kind is Kind.COUNTING else {}

    checked, trials = check(says, workload="InPieces")
    found = told(checked)
    assert [one for one, _, _ in found] == ([Defect.NOTHING_CHANGES] if defect else [])
    assert trials.asked[-1] == ("piece=16 (8)", "counting", 12)
    if not defect:
        assert checked.choices["piece=16"].endswith("a sweep says that it has no effect")


class Server:
    """Stands where a process of its own looks at a workload several times."""

    answers: str | None = None

    def __init__(self, modules: list[str]) -> None:
        self.modules = modules

    def call(self, function: Any, spec: str, answer: str) -> str:
        assert function is module.trials.forked
        assert read_spec(Path(spec)).cache_dir == str(Path(spec).with_name("cache"))
        Path(spec).with_name("log.txt").write_text("Traceback\nValueError: already open\n\n")
        if self.answers is not None:
            Path(answer).write_text(self.answers)
        return "child"


@pytest.mark.parametrize(
    ("answers", "ending", "leaks"),
    [
        (None, None, ["a process that sets it up several times breaks: ValueError: already open"]),
        (
            '{"leaks": [], "reads": []}',
            "killed",
            ["a process that sets it up several times breaks: ValueError: already open"],
        ),
    ],
    ids=["it does not", "it is killed"],
)
def test_a_process_that_lives_several_times_is_asked_once(
    check, monkeypatch: pytest.MonkeyPatch, answers: str | None, ending: str | None, leaks: list[str]
) -> None:
    waited = list[Any]()
    monkeypatch.setattr(module, "ForkServer", type("Answering", (Server,), {"answers": answers}))
    monkeypatch.setattr(module, "wait", lambda children, patience: waited.append(patience) or ending)
    checked, _ = check()
    (checked._folder / "probe/answer.json").unlink()
    assert checked._probed == {"leaks": leaks, "reads": []}
    assert checked._probed["leaks"] == leaks and waited == [360]


def planned(given: Any = (), toggles: Any = None, levels: Any = None, **measure: Any) -> Manifest:
    command = RunCommand(workload={"name": "toys.defective:Sound"}, measure=MeasureConfig(**measure))
    return plan_check(command, Device(), given, toggles, levels)


def labels(manifest: Manifest) -> list[str]:
    return [arm.label for arm in manifest.arms]


def test_a_check_is_brief_but_for_what_was_asked_for() -> None:
    own = {"iterations": 9, "rounds": 7, "timeout_s": 5.0, "evidence_iterations": 3, "repeats": 4}
    brief, asked = planned(**own), planned(tuple(own.keys() - {"timeout_s"}), **own)
    lengths = [
        (one.iterations, one.rounds, one.timeout_s, one.evidence_iterations, one.repeats)
        for one in (brief.sweep.measure, asked.sweep.measure)
    ]
    assert lengths == [(4, 1, 120, 12, 0), (9, 1, 120, 3, 4)]
    assert [len(pack.orders) for pack in brief.packs] == [1]
    assert labels(brief) == ["baseline", "halves=on", "rounded=on"]
    assert labels(planned(toggles=["rounded"])) == ["baseline", "rounded=on"]


def test_arms_that_need_a_process_of_their_own_are_a_pack_and_a_workload_without_toggles_one_arm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Sound, "needs_exec", classmethod(lambda cls, levels: levels.get("halves") == "on"))
    manifest = planned()
    ids = {arm.label: arm.id for arm in manifest.arms}
    assert [(pack.id, pack.start, pack.orders) for pack in manifest.packs] == [
        ("p000", "fork", ((ids["baseline"], ids["rounded=on"]),)),
        ("p001", "exec", ((ids["halves=on"],),)),
    ]
    monkeypatch.setattr(Sound, "toggles", ())
    assert (labels(planned()), planned().effects) == (["baseline"], ())


def test_the_trials_of_a_check_go_with_it_and_those_of_one_that_was_killed_go_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "perfsweep-check-left"
    left.mkdir()
    (left / "alive").touch()
    with module.checking(compose("run", ["workload=digits"]), toggles=["optimizer"]):
        assert not left.exists()
        assert len([*tmp_path.glob("perfsweep-check-*/alive")]) == 1
    assert [*tmp_path.iterdir()] == []
