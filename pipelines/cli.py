"""The console script. Imports neither torch nor wandb, so that help and mistakes answer at once.

Hydra composes for the commands whose options combine (run, sweep); argparse serves those that take a folder.
Exit status: 0 done, 1 some trials or packs failed, 2 a mistake in the command or its input, 3 jobs need
attention, 130 interrupted or detached.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from slurm.errors import SlurmError
from workloads.errors import ConfigError, PerfsweepError

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from pipelines.config.external_workload import Outside

HELP = """perfsweep: measure which PyTorch optimisation buys how much, without changing results

  perfsweep run workload=digits toggles.amp=bf16     one trial here and now
  perfsweep sweep workload=digits sweep=demo         every arm of a sweep, compared with its base
  perfsweep tune workload=digits               search the fastest arm within limits, verify it, keep it as a preset
  perfsweep frontier workload=prover           the fastest size of a toggle, the cliff, the largest that fits
  perfsweep profile workload=digits            where the time of one arm goes: functions, operators, phases, graphs
  perfsweep profile SWEEP --arm ARM            the same of an arm of a sweep; --diff ARM ARM compares two
  perfsweep status SWEEP                             what of a sweep is done
  perfsweep wait SWEEP                               follow a sweep on Slurm to its end, from any shell
  perfsweep logs SWEEP [PACK ...] [--follow]         what its packs print
  perfsweep cancel SWEEP [PACK ...]                  end its jobs; what they finished stays
  perfsweep doctor cluster=slurm                     what the cluster offers, and what it would refuse
  perfsweep compare SWEEP [--against OTHER ...]effects, parity and rulings; what became slower than in others
  perfsweep history SWEEP ... [--arm ARM]      an arm over code versions: kept sweeps or baselines, oldest first
  perfsweep publish SWEEP                            copy its records to W&B, and mend what W&B lost
  perfsweep dashboard SWEEP                          build a W&B workspace for it
  perfsweep claims [WORKLOAD]                        every claim of the reports with its ruling here
  perfsweep selftest                                 whether this machine resolves a known delay
  perfsweep list                                     workloads and named sweeps
  perfsweep describe WORKLOAD                  its configuration, toggles, levels, requirements and claims
  perfsweep new my_workload                          write a workload of your own to start from
  perfsweep check my_workload:MyWorkload             run it briefly, and say which rules it breaks
  perfsweep init [FOLDER]                      a folder with a configuration, a site profile, a Makefile fragment
  perfsweep completion bash|zsh|fish           lines that switch completion on: eval "$(perfsweep completion bash)"

SWEEP is a folder such as runs/digits-demo. run, sweep, profile, tune, frontier and doctor take Hydra
overrides; see
`perfsweep sweep --help`.
Status: 0 done; 1 something failed, is unfinished, or became slower; 2 a mistake in the command or its input;
3 jobs need
attention; 130 interrupted or detached. NO_COLOR=1 switches colours off; output to a file or a pipe has none.
"""  # noqa: E501

COMPOSED = ("run", "sweep", "profile", "tune", "frontier", "doctor")


COMMANDS = (
    "run",
    "sweep",
    "profile",
    "tune",
    "frontier",
    "status",
    "wait",
    "logs",
    "cancel",
    "compare",
    "history",
    "publish",
    "dashboard",
    "claims",
    "doctor",
    "selftest",
    "list",
    "describe",
    "new",
    "check",
    "init",
    "completion",
)

_FOLDER = "folder of a sweep, such as runs/digits-demo"


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: runs a command and exits with its status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        sys.exit(0 if arguments else 2)
    if arguments[0] in ("-V", "--version"):
        from importlib.metadata import version

        print(f"perfsweep {version('perfsweep')}")
        sys.exit(0)
    command, rest = arguments[0], arguments[1:]
    try:
        status = _composed(command, rest) if is_composed(command, rest) else _plain(command, rest)
    except (PerfsweepError, SlurmError) as error:
        print(f"perfsweep {command}: {error}", file=sys.stderr)
        status = 2
    except OSError as error:  # a full or read-only disk, mostly: what is measured stays where it is
        where = f"{error.filename}: " if error.filename else ""
        print(
            f"perfsweep {command}: {where}{error.strerror or error}; nothing measured is lost",
            file=sys.stderr,
        )
        status = 1
    except KeyboardInterrupt:
        print(f"perfsweep {command}: interrupted", file=sys.stderr)
        status = 130
    sys.exit(status)


def is_composed(command: str, arguments: Sequence[str]) -> bool:
    """Whether Hydra composes the command: a profile of what lies in a folder has its configuration
    already."""
    of_folder = (
        "--diff" in arguments
        or "--arm" in arguments
        or not all("=" in one or one[:1] == "-" for one in arguments[:1])
    )
    return command in COMPOSED and not (command == "profile" and of_folder)


def _plain(command: str, arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"perfsweep {command}")
    match command:
        case "compare":
            parser.add_argument("sweep", help=_FOLDER)
            parser.add_argument(
                "--against", nargs="+", default=[], metavar="OTHER", help="other sweeps, or stored baselines"
            )
            parser.add_argument("--store", metavar="FILE", help="keep this sweep's times as a baseline")
            parser.add_argument(
                "--margin",
                type=_share,
                default=0.05,
                help="growth of time that is no regression (%(default)s)",
            )
            given = parser.parse_args(arguments)
            return _commands().compare(given.sweep, given.against, given.store, given.margin)
        case "history":
            return _history(parser, arguments)
        case "profile":
            return _profile(parser, arguments)
        case "publish":
            parser.add_argument("sweep", help=_FOLDER)
            parser.add_argument("--offline", action="store_true", help="write run folders and ask no server")
            given = parser.parse_args(arguments)
            return _tracking().publish(given.sweep, "offline" if given.offline else "online")
        case "dashboard":
            parser.add_argument("sweep", help=_FOLDER)
            parser.add_argument("--entity", help="team or user; default: the sweep's, else the account's")
            parser.add_argument("--project", help="default: the sweep's")
            parser.add_argument("--file", help="write the specification there and ask no server")
            given = parser.parse_args(arguments)
            return _tracking().dashboard(given.sweep, given.entity, given.project, given.file)
        case "claims":
            parser.add_argument("workload", nargs="?", help="a name from `perfsweep list`; all by default")
            parser.add_argument("--runs", default="runs", help="folder of the measured sweeps (%(default)s)")
            given = parser.parse_args(arguments)
            return _commands().claims(given.workload, given.runs)
        case "selftest":
            parser.add_argument(
                "--budget", type=_seconds, default=130.0, help="seconds of trials after which no round begins"
            )
            return _commands().selftest(parser.parse_args(arguments).budget)
        case "status" | "wait" | "logs" | "cancel":
            return _session(command, parser, arguments)
        case "list" | "describe" | "check" | "new" | "init" | "completion":
            return _helping(command, parser, arguments)
    raise ConfigError(f"{command} is no command; choose from: {', '.join(COMMANDS)}")


def _commands() -> Any:
    """Imported only when the arguments are right: it brings torch along."""
    from pipelines.commands import sweep

    return sweep


def _tracking() -> Any:
    from pipelines.commands import publish

    return publish


def _helping(command: str, parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """The commands for people who begin."""
    match command:
        case "check":
            parser.add_argument("workload", help="package.module:Class, or a name from `perfsweep list`")
            parser.add_argument(
                "values", nargs="*", metavar="workload.FIELD=VALUE", help="configuration of the workload"
            )
            given = parser.parse_args(arguments)
            return _checked(given.workload, given.values)
        case "new":
            parser.add_argument("name", help="of the module, such as my_workload")
            given = parser.parse_args(arguments)
            from pipelines.commands import new

            return new.new(given.name)
        case "init":
            parser.add_argument(
                "folder", nargs="?", default=".", help="made where it does not exist (%(default)s)"
            )
            given = parser.parse_args(arguments)
            from pipelines.commands import new

            return new.init(given.folder)
        case "completion":
            parser.add_argument("shell", help="bash, zsh or fish: print the lines that switch completion on")
            parser.add_argument("line", nargs="?", default="", help=argparse.SUPPRESS)
            given = parser.parse_args(arguments)
            from pipelines.commands import completion

            query = given.shell == "query"
            print(
                "\n".join(completion.candidates(given.line, COMMANDS))
                if query
                else completion.script(given.shell)
            )
            return 0
        case "describe":
            parser.add_argument("workload", help="a name from `perfsweep list`, or package.module:Class")
    given = parser.parse_args(arguments)
    from pipelines import terminal
    from pipelines.commands import list as listing

    console = terminal.console_here()
    return listing.describe(console, given.workload) if command == "describe" else listing.list_names(console)


def _checked(workload: str, values: list[str]) -> int:
    from pipelines.check import check
    from pipelines.config import types as config

    config.register()
    return check.check(_compose("run", _spelled_out("run", [f"workload={workload}", *values])))


def _profile(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Profiles of what lies in a folder."""
    parser.add_argument("sweep", nargs="?", help=_FOLDER)
    parser.add_argument("--arm", help="name, label or id of the arm to profile as the sweep measured it")
    parser.add_argument(
        "--diff", nargs=2, metavar=("A", "B"), help="two arms of the sweep, or two folders of profiles"
    )
    parser.add_argument("--tool", help="of a difference: torch, pyinstrument or roofline; all by default")
    parser.epilog = "profile.FIELD=VALUE as in `perfsweep profile workload=...`"
    own = [argument for argument in arguments if argument.startswith("profile.")]
    if settled := [
        argument
        for argument in arguments
        if re.match(r"(workload|toggles|measure|tracking|runs)[.=]", argument)
    ]:
        raise ConfigError(
            f"{settled[0]}: the sweep has settled that; beside the folder of a sweep give profile.FIELD=VALUE"
            " only"
        )
    given = parser.parse_args([argument for argument in arguments if argument not in own])
    from pipelines.commands import profile
    from pipelines.config import types as config

    if given.diff:
        return profile.diff(given.sweep, given.diff, given.tool)
    if given.sweep is None:
        raise ConfigError(
            "--arm needs the folder of the sweep that the arm is of: perfsweep profile runs/SWEEP --arm ARM"
        )
    config.register()
    options = config.typed(_compose("profile", own), config.ProfileCommand).profile
    return profile.profile_arm(given.sweep, given.arm, options)


def _history(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """The command that follows arms over code versions."""
    parser.add_argument(
        "versions", nargs="+", metavar="SWEEP", help="sweeps or stored baselines, oldest first"
    )
    parser.add_argument(
        "--arm", action="append", default=[], help="label of an arm; all of the newest by default"
    )
    parser.add_argument("--margin", type=_share, default=0.05, help="change that is none (%(default)s)")
    given = parser.parse_args(arguments)
    return _commands().history(given.versions, given.arm, given.margin)


def _session(command: str, parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """The commands that look at a sweep which another process started."""
    from pipelines.commands import sessions

    parser.add_argument("sweep", help=_FOLDER)
    if command in ("logs", "cancel"):
        parser.add_argument("packs", nargs="*", help="packs, such as p000; all by default")
    if command == "logs":
        parser.add_argument("--follow", "-f", action="store_true", help="go on while their jobs run")
    given = parser.parse_args(arguments)
    match command:
        case "logs":
            return sessions.logs(given.sweep, given.packs, given.follow)
        case "cancel":
            return sessions.cancel(given.sweep, given.packs)
        case "wait":
            return sessions.wait(given.sweep)
    return sessions.status(given.sweep)


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value < 10:
        raise argparse.ArgumentTypeError(f"{text} is no share such as 0.05")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no positive number of seconds")
    return value


def _composed(command: str, arguments: list[str]) -> int:
    from pipelines.config import home
    from pipelines.config import types as config

    config.register()
    overrides = _spelled_out(command, [*home.overrides(config.parts(command), arguments), *arguments])
    if any(argument.startswith("-") for argument in arguments):
        return _hydra(command, overrides)
    return _action(command)(_compose(command, overrides))


def _action(command: str) -> Callable[[DictConfig], int]:
    if command == "doctor":
        from pipelines.commands import doctor

        return doctor.doctor
    if command == "profile":
        from pipelines.commands import profile

        return profile.profile
    if command == "tune":
        from pipelines.commands import tune

        return tune.tune
    if command == "frontier":
        from pipelines.commands import frontier

        return frontier.frontier
    from pipelines.commands import sweep

    return sweep.sweep if command == "sweep" else sweep.run


def _compose(command: str, overrides: list[str]) -> DictConfig:
    """Compose once; Hydra's own messages become one paragraph."""
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        with initialize_config_module("conf", version_base="1.3"):
            return compose(command, overrides)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_paragraph(error)) from error


def _hydra(command: str, overrides: list[str]) -> int:
    """Hydra's own command line, for --help, --cfg job, --info and completion."""
    import hydra

    @hydra.main(version_base="1.3", config_path="pkg://conf", config_name=command)
    def composed(cfg: DictConfig) -> None:
        try:
            status = _action(command)(cfg)
        except PerfsweepError as error:
            print(f"perfsweep {command}: {error}", file=sys.stderr)
            status = 2
        sys.exit(status)

    sys.argv = [f"perfsweep {command}", *overrides]
    composed()
    return 0


def _spelled_out(command: str, arguments: list[str]) -> list[str]:
    """Overrides as Hydra needs them: free keys with ``++``, workloads from outside and a workload's own
    sweeps by group."""
    from pipelines.config import external_workload

    workload = next((a.partition("=")[2] for a in arguments if a.startswith("workload=")), "digits")
    external = not _exists(f"workload/{workload}.yaml")
    own = external_workload.read(workload) if external else external_workload.Outside(workload)
    if external:
        own.register()
    spelled = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name == "workload" and equals and external:
            spelled.append(f"workload='{own.group}'")
        elif (
            name == "sweep" and equals and (value in own.sweeps or _exists(f"sweep/{workload}/{value}.yaml"))
        ):
            spelled.append(f"sweep='{own.group}/{value}'" if external else f"sweep={workload}/{value}")
        elif re.match(r"(toggles|axes|tune\.(levels|reference))\.", name) or (
            external and name.startswith("workload.")
        ):
            spelled.append(f"++{argument}")
        else:
            spelled.append(argument)
    if command == "sweep" and workload != "digits" and not any(a.startswith("sweep=") for a in arguments):
        spelled.append(_default_sweep(workload, own))
    if (
        command == "tune"
        and not any(a.startswith("tune=") for a in arguments)
        and _exists(f"tune/{workload}.yaml")
    ):
        spelled.append(f"tune={workload}")
    return spelled


def _default_sweep(workload: str, own: Outside) -> str:
    if own.default_sweep:
        return f"sweep='{own.group}/{own.default_sweep}'"
    return f"sweep={workload}/demo" if _exists(f"sweep/{workload}/demo.yaml") else "sweep=ablation"


def _exists(config_file: str) -> bool:
    from importlib.resources import files

    return files("conf").joinpath(config_file).is_file()


def _paragraph(error: Exception) -> str:
    """Hydra's message without its hints about tracebacks, in one paragraph."""
    cause = error.__cause__ if error.__cause__ is not None else None
    text = str(error) if not cause else f"{error} {cause}"
    lines = [line.strip() for line in text.partition("Config search path")[0].splitlines()]
    kept = [
        line
        for line in lines
        if line and not line.startswith(("full_key", "object_type", "reference_type", "Set the env"))
    ]
    return " ".join(dict.fromkeys(kept))


if __name__ == "__main__":
    main()
