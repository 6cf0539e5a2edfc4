"""The one list of commands: dispatch, ``--help`` and completion are all read from it."""

from __future__ import annotations

import click

from perfsweep.pipelines.commands.arguments import (
    A_VERSION,
    COUNT,
    FILE,
    JSON,
    MEASURED,
    NAME,
    PACKS,
    SECONDS,
    SHARE,
    SHELL,
    SWEEP,
    TRUST,
    WORKLOAD,
    option,
    word,
    words,
)
from perfsweep.pipelines.commands.dispatch import (
    SETTINGS,
    Commands,
    Composed,
    ComposedOrScript,
    Plain,
    show_version,
)

EPILOG = """SWEEP is a folder such as runs/digits-demo. `perfsweep COMMAND --help` says what a command takes.

Status: 0 done; 1 something failed, is unfinished, or became slower; 2 a mistake in the command or its
input; 3 jobs need attention; 4 undecided (judge, bisect); 130 interrupted or detached. NO_COLOR=1 switches
colours off; output to a file or a pipe has none."""

VERSION = click.Option(
    ["-V", "--version"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_version,
    help="Show the version.",
)

OF_SCRIPTS = (
    option(
        "--iteration", "What ends an iteration: optimizer.step, backward, loader, marks or module:function."
    ),
    option("--every", "Number of these ends that make one iteration.", type=click.IntRange(1)),
    option("--units", "Units of one iteration.", type=COUNT),
    option(
        "--writes",
        "What happens when it writes into its folder: it gets a copy, is ended, or may write.",
        type=click.Choice(["scratch", "refuse", "allow"]),
    ),
    option("--ranks", "Processes, with torchrun's variables.", type=click.IntRange(1)),
)
"""Options that say how a script is to be run and what its iterations are."""

SECTIONS = {
    "Measure": ("script", "tune", "sweep", "run", "judge", "bisect", "frontier", "profile"),
    "Read": ("compare", "history", "claims", "list", "describe"),
    "Follow": ("status", "wait", "logs", "cancel", "pack"),
    "Share": ("publish", "dashboard", "comment"),
    "Check": ("doctor", "selftest", "check"),
    "Start": ("new", "init", "completion"),
}
"""Commands by what you do with them, as `perfsweep --help` shows them."""

COMMANDS = Commands(
    "perfsweep",
    sections=SECTIONS,
    context_settings=SETTINGS,
    help="Measure which PyTorch optimisation buys how much, without changing results.",
    epilog=EPILOG,
    params=[VERSION],
    commands=[
        ComposedOrScript(
            "run",
            "one trial here and now, with its phases; a script to its end, with levels",
            "run:run",
            option(
                ["levels_file", "--with"],
                "Levels of a script that is run to its end.",
                type=FILE,
                metavar="YAML",
            ),
            example="workload=digits toggles.amp=bf16",
            of_script="run:run_script",
        ),
        Composed(
            "sweep",
            "every arm of a sweep, compared with its base",
            "sweep:sweep",
            example="workload=digits sweep=demo",
            nameless="sweep:ask",
        ),
        ComposedOrScript(
            "tune",
            "the fastest arm within limits, as a preset; for a script as a patch",
            "frontier:tune",
            option("--apply", "Write the patch into the script, if it is as it was measured.", is_flag=True),
            *OF_SCRIPTS,
            option("--timeout", "Seconds for each trial of a script.", type=SECONDS),
            example="train.py -- --width=128",
            of_script="script_tuning:tune_script",
        ),
        Composed(
            "frontier",
            "the fastest size of a toggle, the cliff, the largest that fits",
            "frontier:frontier",
            example="workload=prover frontier.toggle=slab_size",
        ),
        Composed(
            "profile",
            "where the time of an arm goes: functions, operators, phases, graphs",
            "profile:profile",
            option(
                "--arm",
                "Of a sweep's folder: name, label or id of the arm, profiled as the sweep measured it.",
            ),
            option(
                "--diff",
                "Two arms of the sweep, or two folders of profiles.",
                nargs=2,
                type=FILE,
                metavar="A B",
            ),
            option("--tool", "Of a difference: torch, pyinstrument or roofline; all by default."),
            example="workload=digits",
            of_folder="profile:profile_folder",
        ),
        Plain(
            "judge",
            "whether a version of your code is slower than another, or changes results",
            "judge:judge",
            words(
                "words",
                A_VERSION,
                "Commits or worktree, then the options of a sweep; by default HEAD and worktree where"
                " anything is not committed, else where the branch began and HEAD.",
                metavar="[BASE [HEAD]] -- workload=... [KEY=VALUE]...",
            ),
            JSON,
            option(
                "--environment",
                "Compare two environments and not commits: interpreters, folders of virtual environments, or"
                " requirements files.",
                is_flag=True,
            ),
        ),
        Plain(
            "bisect",
            "the first commit that is slower, faster, or changes results",
            "bisect:bisect",
            words(
                "words",
                A_VERSION,
                "Two commits, of which the first is an ancestor of the second, then the options of a sweep.",
                metavar="GOOD BAD -- workload=... [KEY=VALUE]...",
            ),
            option(
                "--find",
                "Find the first commit that is so, measured against GOOD.",
                type=click.Choice(["slower", "faster", "different"]),
                default="slower",
            ),
            JSON,
        ),
        Plain(
            "comment",
            "a Markdown comment for a pull request, from files of judge --json",
            "judge:comment",
            words("files", FILE, "Files that `perfsweep judge --json` wrote.", required=True),
            option("--output", "Write it there instead of printing it.", type=FILE, metavar="FILE"),
        ),
        Plain("status", "progress of a sweep", "sessions:status", SWEEP, JSON),
        Plain("wait", "follow a sweep on Slurm to its end, from any shell", "sessions:wait", SWEEP),
        Plain(
            "logs",
            "logs of the packs of a sweep",
            "sessions:logs",
            SWEEP,
            PACKS,
            option(["-f", "--follow"], "Go on while their jobs run.", is_flag=True),
        ),
        Plain("cancel", "end the jobs of a sweep; what they finished stays", "sessions:cancel", SWEEP, PACKS),
        Plain("pack", "put finished trials into one file, which all commands read", "sessions:pack", SWEEP),
        Plain(
            "compare",
            "speeds, same results or not, rulings; what became slower",
            "comparison:compare",
            SWEEP,
            words("others", MEASURED, "Further sweeps or baselines after --against."),
            option(
                "--against",
                "Another sweep, or a stored baseline; several may follow.",
                multiple=True,
                type=MEASURED,
                metavar="OTHER...",
            ),
            option("--store", "Keep this sweep's times as a baseline.", type=FILE, metavar="FILE"),
            option("--margin", "Relative growth of time that is allowed.", type=SHARE, default=0.05),
            option(
                "--explain", "Show only how one row's verdict follows: its number or name.", metavar="ROW"
            ),
            option(
                "--columns",
                "Further columns in place of the sweep's own, as energy,cost; docs/tables.md lists them.",
                metavar="NAMES",
            ),
            option("--figure", "Draw the effects as SVG, PNG or PDF.", type=FILE, metavar="FILE"),
            option("--latex", "Write the effects as LaTeX tables.", type=FILE, metavar="FILE"),
            option("--page", "Write the answer as one page, a PDF.", type=FILE, metavar="FILE"),
            JSON,
            option(
                ["as_csv", "--csv"],
                "Print the effects as CSV; with --against, what has changed.",
                is_flag=True,
            ),
            TRUST,
            option("--output", "Folder for tables and reports, not the sweep's.", type=FILE, metavar="DIR"),
        ),
        Plain(
            "history",
            "an arm over code versions: kept sweeps or baselines, oldest first",
            "comparison:history",
            words(
                "versions",
                MEASURED,
                "Sweeps or stored baselines, oldest first.",
                required=True,
                metavar="SWEEP...",
            ),
            option(
                "--arm",
                "Label of an arm, several times if need be; all of the newest by default.",
                multiple=True,
            ),
            option("--margin", "Change that is none.", type=SHARE, default=0.05),
            option(
                "--picture", "Draw the arms over the versions, as SVG, PNG or PDF.", type=FILE, metavar="FILE"
            ),
            JSON,
            option(["as_csv", "--csv"], "Print a line for each arm and version as CSV.", is_flag=True),
            TRUST,
        ),
        Plain(
            "claims",
            "every claim of the reports with its ruling here",
            "claims:claims",
            word("workload", WORKLOAD, "A name from `perfsweep list`; all by default.", required=False),
            option("--runs", "Folder of the measured sweeps.", type=FILE, default="runs"),
            option("--markdown", "Print docs/claims.md, ruled by docs/results instead.", is_flag=True),
        ),
        Plain(
            "publish",
            "copy the records of a sweep to W&B, without duplicates",
            "sessions:publish",
            SWEEP,
            option("--offline", "Write run folders and ask no server.", is_flag=True),
        ),
        Plain(
            "dashboard",
            "build a W&B workspace for a sweep, or a W&B Report of it",
            "sessions:dashboard",
            SWEEP,
            option("--report", "A report: what `compare` said, and the charts.", is_flag=True),
            option("--entity", "Team or user; the sweep's by default, else the account's."),
            option("--project", "The sweep's by default."),
            option("--file", "Write the specification there and ask no server.", type=FILE),
        ),
        Composed(
            "doctor",
            "check a Slurm site profile, a GPU with gpu=true, or a workload",
            "doctor:doctor",
            of_workload="doctor:check",
            example="cluster=slurm",
        ),
        Plain(
            "selftest",
            "whether this machine resolves a known delay",
            "selftest:selftest",
            option("--budget", "Seconds of trials after which no round begins.", type=SECONDS, default=40.0),
        ),
        Plain("list", "workloads and named sweeps", "list:list_names"),
        Plain(
            "describe",
            "configuration, toggles, levels, requirements and claims of a workload",
            "list:describe",
            word("workload", WORKLOAD, "A name from `perfsweep list`, or package.module:Class."),
        ),
        Plain(
            "script",
            "whether a training script can be measured, and which toggles can act",
            "script_looking:script",
            word("path", FILE, "The script; or after `--` the line that starts it, as torchrun train.py."),
            words("args", NAME, "Its arguments, after `--`.", metavar="[-- ARGS]..."),
            *OF_SCRIPTS,
            option("--timeout", "Seconds for each of its runs.", type=SECONDS, default=120.0),
        ),
        Plain(
            "new",
            "write a workload of your own to start from",
            "new:new",
            word("name", NAME, "Of the module, such as my_workload."),
        ),
        Plain(
            "check",
            "run a workload briefly, and say which rules it breaks",
            "doctor:check",
            word("workload", WORKLOAD, "package.module:Class, or a name from `perfsweep list`."),
            words(
                "values",
                NAME,
                "Of the workload, workload.FIELD=VALUE; of all arms, toggles.NAME=LEVEL; of each trial,"
                " measure.FIELD=VALUE, such as measure.timeout_s=600 where compiling is slow.",
                metavar="[FIELD=VALUE]...",
            ),
            option("--toggles", "Only the levels of these, as amp,compile.", metavar="NAME,NAME"),
        ),
        Plain(
            "init",
            "a folder with a configuration, a site profile, a Makefile fragment; or a workflow for CI",
            "new:init",
            words(
                "words",
                FILE,
                "A folder, made where it does not exist; with --ci also the options of the judge it runs.",
                metavar="[FOLDER] [-- workload=... KEY=VALUE...]",
            ),
            option(
                "--ci",
                "Write only a workflow that judges pull requests and comments on them.",
                type=click.Choice(["github"]),
            ),
            option(
                "--launcher",
                "Write only a site profile, of a file that Hydra's submitit launcher reads.",
                metavar="FILE",
            ),
            option("--overwrite", "Write over files that are there.", is_flag=True),
        ),
        Plain(
            "completion",
            'lines that switch completion on: eval "$(perfsweep completion bash)"',
            "arguments:completion",
            word("shell", SHELL, "bash, zsh or fish."),
        ),
        Plain(
            "complete-line",
            "words that the end of a line may become",
            "arguments:complete_line",
            word("line", NAME, "What was typed, up to the cursor."),
            hidden=True,
        ),
    ],
)
