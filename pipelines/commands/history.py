"""`perfsweep history`: arms over code versions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfsweep.pipelines import api
from perfsweep.pipelines.analysis.baselines import Baseline
from perfsweep.pipelines.analysis.version_history import CommitVersions, History, commit_versions
from perfsweep.pipelines.analysis.version_history import history as follow
from perfsweep.pipelines.commands.comparison import refuse_several
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.report import arm_history as reporting
from perfsweep.pipelines.report import history_picture
from perfsweep.pipelines.report.objects import print_csv, print_json
from perfsweep.pipelines.report.regressions import stored_baseline
from perfsweep.pipelines.store.declared import declared_by
from perfsweep.pipelines.terminal import console_here, error_console


def history(
    versions: Sequence[str],
    arm: Sequence[str] = (),
    margin: float = 0.05,
    picture: str | None = None,
    as_json: bool = False,
    as_csv: bool = False,
) -> int:
    """Print arms over sweeps or stored baselines, oldest first; status 1 says that an arm became slower.

    Of a sweep whose arms are commits each commit is a version.

    Raises
    ------
    ConfigError
        Two answers are asked for, an arm is unknown, or the versions did not do the same work.
    """
    refuse_several({"--json": as_json, "--csv": as_csv})
    if picture:
        history_picture.refuse_other_kinds(Path(picture))
    console = error_console() if as_json or as_csv else console_here()
    found = _followed(versions, arm, margin)
    status = SOME_FAILED if any(one.slower for one in found.arms) else DONE
    if picture:
        history_picture.write_picture(Path(picture), found)
    if as_json:
        print_json(reporting.history_object(found, status, picture))
    elif as_csv:
        print_csv(reporting.CSV_SCHEMA, reporting.csv_rows(found))
    else:
        reporting.show(console, found)
    if picture:
        console.print(f"picture: {picture}", highlight=False, soft_wrap=True)
    return status


def _followed(paths: Sequence[str], arms: Sequence[str], margin: float) -> History:
    baselines: list[Baseline] = []
    paired: CommitVersions | None = None
    for path in paths:
        own, paired = _versions_at(path)
        baselines += own
    return follow(baselines, arms, margin, paired if len(paths) == 1 else None)


def _versions_at(path: str) -> tuple[Sequence[Baseline], CommitVersions | None]:
    """Read a stored baseline, what a sweep can be compared by, or the commits that are arms of one."""
    if stored := stored_baseline(path):
        return [stored], None
    sweep = api.open_sweep(path)
    if commits := commit_versions(sweep.manifest, declared_by(sweep.manifest).unit, sweep.trials):
        return commits.baselines, commits
    return [sweep.baseline], None
