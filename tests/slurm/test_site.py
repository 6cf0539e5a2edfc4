"""A profile's fields: what they ask for, and which exclude each other."""

from __future__ import annotations

from typing import Any

import pytest

from perfsweep.slurm.errors import ClusterError
from perfsweep.slurm.site import Price, Shape, SiteProfile, parse_price, sbatch_option


@pytest.mark.parametrize(
    ("site", "ranks", "resources", "shape"),
    [
        ({"gpus": 0}, 2, {}, Shape(0, 8)),
        ({"nodes": 2}, 3, {}, Shape(2, 8, 2)),
        ({"nodes": 2, "ntasks_per_node": 3}, 4, {}, Shape(3, 12, 2)),
        ({}, 2, {"gpus": 3, "cpus_per_task": 1}, Shape(3, 2)),
        (
            {},
            1,
            {"time_min": 90, "memory": "4G", "gpus": 2},
            Shape(2, 4, 1, (("memory", "4G"), ("time_min", 90))),
        ),
    ],
)
def test_the_shape_of_a_job_follows_its_ranks_and_its_own_resources(
    site: dict[str, Any], ranks: int, resources: dict[str, Any], shape: Shape
) -> None:
    assert Shape.of(SiteProfile(**site), ranks, resources) == shape


OWN = {"account": "lab", "partition": "big", "gpu_type": "h100", "memory": "4G", "packs_per_job": 3}


@pytest.mark.parametrize(
    ("fields", "shape", "options", "words"),
    [
        (
            OWN,
            Shape(0, 3, 1, (("memory", "9G"), ("time_min", 5))),
            {"time": 5, "nodes": 1, "cpus-per-task": 3, "mem": "9G"},
            "no GPU, 3 cores, 9G (mem), at most 5 min",
        ),
        (
            OWN | {"cpu_flag": "cpus-per-gpu", "gpu_flag": "gpus", "time_min": 90},
            Shape(2, 7, 3),
            {"time": 90, "nodes": 3, "cpus-per-gpu": 4, "gpus": "h100:6", "mem": "4G"},
            "2 GPUs (h100), 7 cores, 4G (mem) on each of 3 nodes, at most 90 min",
        ),
    ],
)
def test_what_a_job_of_a_shape_asks_for_is_told_to_sbatch_and_in_words(
    fields: dict[str, Any], shape: Shape, options: dict[str, Any], words: str
) -> None:
    site = SiteProfile(**fields)
    assert site.options(shape) == {"partition": "big", "account": "lab", "ntasks-per-node": 1} | options
    assert site.resources(shape) == f"{words} in partition big, up to 3 packs in a job"
    plain = {"time": 60, "nodes": 1, "ntasks-per-node": 1, "cpus-per-task": 3, "gres": "gpu:1"}
    assert SiteProfile().options(Shape(1, 3)) == plain
    assert SiteProfile().resources(Shape(1, 3)) == "1 GPU, 3 cores, at most 60 min"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scratch": " "}, "cluster.scratch is empty; name a folder, or leave it out"),
        (
            {"time_min": 1, "signal_delay_s": 60},
            "cluster.signal_delay_s=60 leaves nothing of cluster.time_min=1",
        ),
        ({"packs_per_job": 2, "nodes": 2}, "use one of them"),
        (
            {"python": " "},
            "cluster.python=' ' is no command (it is blank); write the words that start Python",
        ),
        ({"sbatch": ["--time=5"]}, "--time=5 collides with what perfsweep writes itself; use the field"),
        (
            {"gpus": 2, "gpu_type": "1g.10gb"},
            "cluster.gpus=2 of type 1g.10gb: one process uses one MIG slice",
        ),
        (
            {"sbatch": ["--clusters beta"]},
            "cluster.sbatch: --clusters beta: jobs are followed on the cluster that answers here",
        ),
        ({"sbatch": ["--licenses=a", "--licenses b"]}, "--licenses is given twice, and sbatch takes one"),
        ({"price": "free"}, "cluster.price=free is no price"),
    ],
)
def test_fields_that_cannot_stand_together_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ClusterError) as refused:
        SiteProfile(**fields).check()
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("--contiguous", ("contiguous", True)),
        ("--licenses=a=b", ("licenses", "a=b")),
        ("--licenses a", ("licenses", "a")),
        ("--begin=now + 1hour", ("begin", "now + 1hour")),
        ("-La", ("licenses", "a")),
        ("-H", ("hold", True)),
    ],
)
def test_an_option_is_a_long_name_and_a_value(text: str, option: tuple[str, str | bool]) -> None:
    assert sbatch_option(text) == option


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no option of sbatch, or more than one; write each as --name=value"),
        ("-L a b", "is no option of sbatch, or more than one"),
        ("-@ b", "is unknown here; write it as --name=value"),
        ("--a=b -c", "is more than one option"),
        ("--a='b", r"cannot be read \(No closing quotation\)"),
    ],
)
def test_anything_else_is_no_option(text: str, message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        sbatch_option(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(
            (name, "a\nb")
            for name in ("account", "partition", "python", "scratch", "wckey", "slurm_conf", "memory")
        ),
        *((name, ["fine", "a\rb"]) for name in ("setup", "teardown", "srun_args", "sbatch", "env_allow")),
        ("env_set", {"NAME": "a\nb"}),
        ("env_set", {"A\nB": "b"}),
        *(("account", f"a{sign}b") for sign in "\0\x07\x1b\x7f\x85\udcff"),
    ],
)
def test_no_field_may_hold_what_is_no_part_of_a_line_of_the_batch_script(field: str, value: object) -> None:
    with pytest.raises(ClusterError, match=f"^cluster.{field}: a line break or another control char"):
        SiteProfile(**{field: value}).check()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "price", "said"),
    [
        ("2.5EUR/GPUh", Price(2.5, "EUR", "GPU"), "2.5 EUR per GPU-hour"),
        (" 1e-1 $ per Node hour ", Price(0.1, "$", "node"), "0.1 $ per node-hour"),
        ("0.1/node-hour", Price(0.1, "", "node"), "0.1 per node-hour"),
    ],
)
def test_an_amount_with_a_unit_is_a_price_and_reads_back_as_it_was_meant(
    text: str, price: Price, said: str
) -> None:
    assert (parse_price(text), str(price), parse_price(said)) == (price, said, price)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2.5", "cluster.price=2.5 has no unit; write it as 2.5/GPU-hour or 2.5/node-hour"),
        (
            "-1/GPU-hour",
            "cluster.price=-1/GPU-hour must be above zero; leave it out where nothing is charged",
        ),
        ("nan/node-hour", "is no price"),
        ("1e999/node-hour", "must be above zero"),
        ("2.5/hour", "is no price; write it as"),
        ("1.2.3/GPU-hour", "is no price"),
    ],
)
def test_anything_else_is_refused_with_what_to_write(text: str, reason: str) -> None:
    with pytest.raises(ClusterError) as refused:
        SiteProfile(price=text).check()
    assert reason in str(refused.value)
