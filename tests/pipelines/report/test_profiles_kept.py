"""Profiles after they are taken: linked in reports, copied to W&B, and beside trials without being one."""

from __future__ import annotations

import re
from pathlib import Path

from recorded import FAST, IDENTITY, NAIVE, Built, build, publish_here
from run_file import read_run

from perfsweep.pipelines.analysis.compare import Comparison, Reference
from perfsweep.pipelines.report.html import write_html
from perfsweep.pipelines.report.markdown import write_markdown
from perfsweep.pipelines.report.profile_tables import linked_profiles
from perfsweep.pipelines.store.profiles import (
    UNFINISHED,
    Cost,
    Profile,
    arm_folder,
    kept_profiles,
    write_profile,
)
from perfsweep.pipelines.store.progress_read import read_progress
from perfsweep.pipelines.store.provenance import read_provenance
from perfsweep.pipelines.store.records import Arm

COSTS = (Cost(name="aten::mm", self_ns=75.0), Cost(name="aten::<copy>", self_ns=25.0))


def profile_of(arm: Arm, tool: str = "torch", **changes: object) -> Profile:
    values = {
        "slice": "iterations 2:5",
        "iterations": 3,
        "units": 3.0,
        "bare_ns": (10.0,),
        "profiled_ns": (15.0,),
        "costs": COSTS,
    }
    return Profile.model_validate(
        {"tool": tool, "workload": "toy", "unit": "row", "arm": arm, **values, **changes}
    )


def add(built: Built, arm: Arm, tool: str = "torch", **changes: object) -> Path:
    """A whole profile with a file to look at."""
    folder = arm_folder(built.folder, arm) / tool
    folder.mkdir(parents=True)
    write_profile(folder, profile_of(arm, tool, **changes))
    (folder / "record.json").write_text("{}")
    (folder / "trace.json.gz").write_bytes(b"trace")
    (folder / "profile.html").write_text("<html>tree</html>")
    return folder


def test_a_report_links_each_profile_beside_its_arm(tmp_path: Path) -> None:
    built = build(tmp_path / "demo")
    add(built, FAST)
    comparison = Comparison("demo", "pair", 0.01, Reference("naive", 1500.0, 6), (), (), ())
    found = read_provenance(built.folder.config_file, [])
    write_markdown(built.folder, comparison, found)
    from perfsweep.pipelines.analysis.collect import collect

    table = collect(built.folder, built.manifest, read_progress(built.folder, built.manifest))
    write_html(built.folder, built.manifest, comparison, table, found)
    place = arm_folder(built.folder, FAST).name
    text, page = built.folder.markdown_file.read_text(), built.folder.report_file.read_text()
    address = f"profiles/{place}/torch/trace.json.gz"
    assert (built.folder.path / address).exists()
    assert rf"| {FAST.label} | torch, iterations 2:5 | aten::mm 75%; aten::\<copy> 25% | 1.50x |" in text
    assert f"[trace.json.gz]({address})" in text
    assert f'href="{address}"' in page
    assert re.findall("<h2>(.*?)</h2>", page) == ["Iterations", "Arms", "Profiles", "Where this comes from"]
    assert ">The last round of naive, iteration by iteration; warm-up is dotted.</figcaption>" in page
    assert "aten::&lt;copy&gt; 25%" in page


def test_what_was_interrupted_or_damaged_is_not_linked(tmp_path: Path) -> None:
    built = build(tmp_path / "demo")
    add(built, FAST, tool=f"torch{UNFINISHED}")
    damaged = add(built, NAIVE)
    (damaged / "profile.json").write_text("{")
    problems: list[str] = []
    assert linked_profiles(built.folder) == kept_profiles(built.folder, problems) == []
    assert len(problems) == 1 and str(damaged) in problems[0]


def test_offline_an_arms_profiles_are_a_run_with_their_files_as_an_artifact(tmp_path: Path) -> None:
    built = build(tmp_path / "demo")
    add(built, FAST)
    add(built, FAST, "dynamo", costs=(), findings=("2 graphs",), facts={"compiled_graphs": 2.0})
    done = publish_here(built)
    assert done.complete and len(done.runs) == 3
    (path,) = built.folder.wandb_dir.glob(f"offline-run-*-{FAST.id}-profile")
    run = read_run(path)
    assert (run.job_type, run.group, run.config["variant"]) == ("profile", "demo", "late")
    assert (run.tags, run.exit_code, run.name) == (("Spinner", "demo"), 0, "profile of late")
    assert (run.summary["profile/torch/overhead"], run.summary["profile/dynamo/compiled_graphs"]) == (
        1.5,
        2.0,
    )
    files = run.artifacts[f"profile-{IDENTITY}-{FAST.id}-profile"]
    assert {"torch/trace.json.gz", "torch/profile.html", "torch/profile.json", "dynamo/profile.json"} <= set(
        files
    )
    assert not any("record.json" in name for name in files)
    assert publish_here(built).new == 0
