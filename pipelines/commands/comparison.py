"""`perfsweep compare` and `history`: effects of what is done, and what became slower than in others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from perfsweep.pipelines import api
from perfsweep.pipelines.analysis import baselines
from perfsweep.pipelines.analysis.baselines import Baseline, Changes
from perfsweep.pipelines.analysis.version_history import CommitVersions, History, commit_versions
from perfsweep.pipelines.analysis.version_history import history as follow
from perfsweep.pipelines.commands.sweep import show_comparison, status_of
from perfsweep.pipelines.exits import DONE, SOME_FAILED
from perfsweep.pipelines.report import arm_history as reporting
from perfsweep.pipelines.report import explanation
from perfsweep.pipelines.report.comparison_object import CSV_SCHEMA, comparison_object, effect_rows
from perfsweep.pipelines.report.markdown import effects_latex
from perfsweep.pipelines.report.tables import Rows, print_csv, print_json
from perfsweep.pipelines.store.planned import declared_workload
from perfsweep.pipelines.store.records import SweepFolder
from perfsweep.pipelines.store.schema import declared_by
from perfsweep.pipelines.terminal import console_here, error_console
from perfsweep.workloads.errors import ConfigError


def compare(
    sweep: str,
    others: Sequence[str] = (),
    against: Sequence[str] = (),
    store: str | None = None,
    margin: float = 0.05,
    explain: str | None = None,
    columns: str | None = None,
    figure: str | None = None,
    latex: str | None = None,
    page: str | None = None,
    as_json: bool = False,
    as_csv: bool = False,
    trust: bool = False,
    output: str | None = None,
) -> int:
    """Compare a sweep; where others are named, status 1 says that an arm became slower.

    With `explain` only that row of its effects is derived, step by step. With `as_json` or `as_csv` the
    answer is for a program, and sentences go to stderr. `columns` are names, with commas between them, of
    what its tables show next to time. `figure` and `latex` are files for the effects, as a picture and as
    tables; `page` is one for the whole answer. With `trust` the sweep's workload may be imported from here.
    `output` is a folder for tables and reports in place of the sweep's.

    Raises
    ------
    ConfigError
        Others are named without ``--against``, two answers are asked for, a column is unknown, there is no
        such row to explain, or a file cannot be written.
    """
    if others and not against:
        raise ConfigError(f"{others[0]}: write --against before the sweeps to compare with")
    refuse_several({"--json": as_json, "--csv": as_csv, "--explain": bool(explain)})
    if explain:
        refuse_several(
            {"--explain": True, "--figure": bool(figure), "--latex": bool(latex), "--page": bool(page)}
        )
    files = bool(figure or latex or page)
    if files:
        _refuse_other_kinds(figure, latex, page)
    for_people = not (as_json or as_csv)
    console = console_here() if for_people else error_console()
    if trust:
        _import_workload(sweep)
    opened = api.open_sweep(sweep, _names(columns), output)
    earlier = [baseline_at(path) for path in (*against, *others)]  # what is missing is said before tables
    if explain:
        explanation.show(console, opened.comparison, explain)
        return DONE
    status = show_comparison(console, opened) if for_people else status_of(opened)
    if store:
        baselines.store(opened.baseline, Path(store))
        console.print(f"baseline: {store}", soft_wrap=True)
    if files:
        _export(console, opened, figure, latex, page)
    every = [baselines.compare_baselines(one, opened.baseline) for one in earlier]
    slower = any(one.regressions(margin) for one in every)
    status = max(status, SOME_FAILED if slower else DONE)
    if as_json:
        report = opened.report()
        console.print(f"report: {report}", soft_wrap=True)
        path = None if report.read_only else report.path
        others_found = [reporting.against(one, margin) for one in every]
        workload = opened.manifest.sweep.workload
        print_json(comparison_object(opened.comparison, workload, sweep, path, status, store, others_found))
    elif as_csv:
        _print_csv(opened, every, margin)
    else:
        reporting.show_against(console, every, margin)
    return status


def _import_workload(path: str) -> None:
    """Import the workload of a sweep from here, as `--trust` asks for; a stored baseline has none."""
    folder = SweepFolder(path)
    if folder.manifest_file.exists():
        planned = folder.read_manifest().sweep
        declared_workload(planned.workload, planned.config)


def _refuse_other_kinds(figure: str | None, latex: str | None, page: str | None) -> None:
    from perfsweep.pipelines.report import picture_file  # with what draws

    if figure:
        picture_file.refuse_other_kinds("--figure", Path(figure))
    if latex:
        picture_file.refuse_other_kinds("--latex", Path(latex), (".tex",))
    if page:
        picture_file.refuse_other_kinds("--page", Path(page), (".pdf",))


def _export(
    console: Console, opened: api.Sweep, figure: str | None, latex: str | None, page: str | None
) -> None:
    """Write the effects as a picture and as LaTeX, and the answer as a page, where files are named."""
    from perfsweep.pipelines.report import picture_file

    if figure:
        picture_file.write_effects("--figure", Path(figure), opened.comparison)
        console.print(f"figure: {figure}", soft_wrap=True)
    if latex:
        picture_file.write_file("--latex", Path(latex), effects_latex(opened.comparison).encode())
        console.print(f"LaTeX: {latex}", soft_wrap=True)
    if page:
        picture_file.write_page("--page", Path(page), opened.comparison)
        console.print(f"page: {page}", soft_wrap=True)


def _print_csv(opened: api.Sweep, every: Sequence[Changes], margin: float) -> None:
    """Print the effects, or what has changed since the others where they are named."""
    if not every:
        print_csv(CSV_SCHEMA, effect_rows(opened.comparison, opened.comparison.effects))
        return
    rows = [row for one in every for row in reporting.judged(one, margin)]
    print_csv(
        reporting.AGAINST_CSV_SCHEMA, Rows((reporting.THEN, *reporting.change_columns("reference")), rows)
    )


def refuse_several(options: dict[str, bool]) -> None:
    """Refuse a command line that asks for several kinds of answers, of which each needs stdout for itself.

    Raises
    ------
    ConfigError
        It does.
    """
    asked = [name for name, given in options.items() if given]
    if len(asked) > 1:
        raise ConfigError(f"{' and '.join(asked)} are different answers; ask for one at a time")


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def baseline_at(path: str) -> Baseline:
    """Read a stored baseline, or what the folder of a sweep can be compared by."""
    return api.open_sweep(path).baseline if Path(path).is_dir() else baselines.load(Path(path))


def history(
    versions: Sequence[str],
    arm: Sequence[str] = (),
    margin: float = 0.05,
    picture: str | None = None,
    as_json: bool = False,
    as_csv: bool = False,
    trust: bool = False,
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
        from perfsweep.pipelines.report import picture_file

        picture_file.refuse_other_kinds("--picture", Path(picture))
    console = error_console() if as_json or as_csv else console_here()
    for path in versions if trust else ():
        _import_workload(path)
    found = _followed(versions, arm, margin)
    status = SOME_FAILED if any(one.slower for one in found.arms) else DONE
    if picture:
        from perfsweep.pipelines.report import picture_file

        picture_file.write_history("--picture", Path(picture), found)
    if as_json:
        print_json(reporting.history_object(found, status, picture))
    elif as_csv:
        print_csv(reporting.CSV_SCHEMA, reporting.csv_rows(found))
    else:
        reporting.show(console, found)
    if picture:
        console.print(f"picture: {picture}", soft_wrap=True)
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
    if not Path(path).is_dir():
        return [baselines.load(Path(path))], None
    sweep = api.open_sweep(path)
    unit = declared_by(sweep.manifest, sweep.progress.every).unit
    if commits := commit_versions(sweep.manifest, unit, sweep.trials):
        return commits.baselines, commits
    return [sweep.baseline], None
