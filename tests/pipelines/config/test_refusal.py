"""Refusals of Hydra and OmegaConf in the words of whoever typed what they refuse."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from perfsweep.pipelines.config import composition, spelling
from perfsweep.pipelines.config.refusal import sentence, wrong_type
from perfsweep.workloads.errors import ConfigError


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("measure.rounds=x", "measure.rounds=x is not a whole number"),
        ("measure.look=maybe", "measure.look=maybe is not true or false"),
        ("axes=3", "axes=3 is no mapping: write axes.NAME=VALUE, one for each"),
        ("toggles=x=y", "toggles=x=y cannot be read; write it as FIELD=VALUE"),
        (
            "cluster.arm_resources=[{time_min: x}]",
            "cluster.arm_resources: time_min=x is not a whole number, or null",
        ),
        (
            "cluster.arm_resources=[{tim_min: 3}]",
            "cluster.arm_resources: tim_min is unknown; did you mean time_min? an entry has: levels, memory,",
        ),
        ("sweep.designs=[{kind: arms, arms: 3}]", "sweep.designs: arms is no mapping"),
        ("sweep.designs=[3]", "sweep.designs[0] is not of the right type"),
    ],
)
def test_a_value_is_refused_by_its_field_and_what_that_takes(override: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        composition.compose("sweep", ["workload=digits", override])
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("measure.rounds", "x", "measure.rounds=x is not a whole number"),
        ("measure.rounds", None, "measure.rounds is not a whole number"),
        ("measure.precision", "x", "measure.precision=x is not a number, or null"),
        ("keep", 3, "keep=3 is not text, or null"),
        ("retry", None, "retry is no list: write 'retry=[VALUE]'"),
        ("sweep", 3, "sweep=3 is no mapping: write sweep.NAME=VALUE, one for each"),
        ("workload", 3, "workload=3 is not of the right type"),
    ],
)
def test_each_kind_of_field_has_its_words(name: str, value: object, says: str) -> None:
    assert wrong_type(name, value, spelling.options("sweep").get(name)) == says


def test_a_field_that_nobody_declares_has_no_type() -> None:
    assert wrong_type("a.b", 3, None) == "a.b=3 is not of the right type"


def caused(text: str, kind: str = "ValidationError", **facts: object) -> Exception:
    error = Exception(text)
    error.__cause__ = type(kind, (Exception,), facts)(text)
    return error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            caused("", "MissingMandatoryValue", full_key="workload.path"),
            "workload.path is missing: give it as workload.path=VALUE",
        ),
        (
            caused("", "InterpolationKeyError", full_key="runs"),
            "runs: what it refers to with ${...} does not exist; write the value itself",
        ),
        (
            caused("Error merging override runs=${x}", "InterpolationKeyError", full_key="runs"),
            "runs=${x}: what it refers to with ${...} does not exist; write the value itself",
        ),
        (
            caused("Value 'two' of type 'str' could not be converted", full_key="measure.rounds"),
            "measure.rounds=two is not a whole number",
        ),
        (
            caused("Could not find 'sweep/digits/x'"),
            "sweep/digits/x: there is no such configuration; `perfsweep list` shows workloads and their",
        ),
        (
            caused("In 'cluster/site': Could not find 'cluster/slum'"),
            "cluster/site.yaml: defaults: there is no cluster/slum.yaml next to it, nor among perfsweep's"
            " own",
        ),
        (
            caused("In 'cluster/site': defaults must be a list"),
            "cluster/site.yaml: defaults must be a list of names, such as [slurm]",
        ),
        (
            caused("In 'cluster/site': what is it?"),
            "cluster/site.yaml: it must hold FIELD: VALUE, one in a line, with fields that perfsweep has",
        ),
        (
            caused("In 'cluster/site': Key 'gpuz' not in 'ClusterConfig'\nfull_key: cluster.gpuz"),
            "cluster/site.yaml: cluster.gpuz is unknown; did you mean gpus? cluster has: ",
        ),
        (
            caused("In 'cluster/site': Value 'two' is none\nfull_key: cluster.gpus"),
            "cluster/site.yaml: cluster.gpus=two is not a whole number",
        ),
        (
            caused("of the override +x=(", override="x=("),
            "x=( cannot be read; write it as FIELD=VALUE, and a value with spaces",
        ),
        (caused("parsing override '++x.y=[('\nmore"), "x.y=[( cannot be read; write it as FIELD=VALUE"),
        (
            caused("something else"),
            "a YAML file of the configuration has a key that is no name; keys are fields, or texts in quotes",
        ),
        (caused("In 'sweep': something else"), "a YAML file of the configuration has a key that is no name"),
    ],
)
def test_a_refusal_is_one_sentence_without_hydras_words(error: Exception, says: str) -> None:
    found = sentence("sweep", error)
    assert found.startswith(says) and "\n" not in found


def test_an_error_without_a_cause_is_its_own() -> None:
    error = Exception("Could not load 'x'")
    assert SimpleNamespace(text=sentence("sweep", error)).text.startswith("x: there is no such configuration")
