"""The console script. Imports neither torch nor wandb, so that help and mistakes answer at once.

Hydra composes for the commands whose options combine (run, sweep); argparse serves those that take a folder.
Exit status: 0 done, 1 some trials or packs failed, 2 a mistake in the command or its input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence

from omegaconf import DictConfig

from workloads.errors import ConfigError, PerfsweepError

HELP = """perfsweep: measure which PyTorch optimisation buys how much, without changing results

  perfsweep run workload=digits toggles.amp=bf16     one trial here and now
  perfsweep sweep workload=digits sweep=demo         every arm of a sweep, compared with its base
  perfsweep status SWEEP                             what of a sweep is done
  perfsweep compare SWEEP                            effects, parity and rulings of what is done
  perfsweep publish SWEEP                            copy its records to W&B
  perfsweep list                                     workloads and named sweeps
  perfsweep describe WORKLOAD                        its toggles, levels, requirements and claims

SWEEP is a folder such as runs/digits-demo. run and sweep take Hydra overrides; see `perfsweep sweep --help`.
"""

COMPOSED = ("run", "sweep")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: runs a command and exits with its status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        sys.exit(0 if arguments else 2)
    command, rest = arguments[0], arguments[1:]
    try:
        status = _composed(command, rest) if command in COMPOSED else _plain(command, rest)
    except PerfsweepError as error:
        print(f"perfsweep {command}: {error}", file=sys.stderr)
        status = 2
    except OSError as error:  # a full or read-only disk, mostly: what is measured stays where it is
        where = f"{error.filename}: " if error.filename else ""
        print(f"perfsweep {command}: {where}{error.strerror or error}; nothing measured is lost", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        print(f"perfsweep {command}: interrupted", file=sys.stderr)
        status = 130
    sys.exit(status)


def _plain(command: str, arguments: list[str]) -> int:
    from pipelines import commands

    parser = argparse.ArgumentParser(prog=f"perfsweep {command}")
    match command:
        case "status" | "compare" | "publish":
            parser.add_argument("sweep", help="folder of a sweep, such as runs/digits-demo")
            action: Callable[[str], int] = {
                "status": commands.status,
                "compare": commands.compare,
                "publish": commands.publish,
            }[command]
            return action(parser.parse_args(arguments).sweep)
        case "list":
            parser.parse_args(arguments)
            return commands.list_names()
        case "describe":
            parser.add_argument("workload", help="a name from `perfsweep list`, or package.module:Class")
            return commands.describe(parser.parse_args(arguments).workload)
    raise ConfigError(f"{command} is no command; choose from: run, sweep, status, compare, publish, list, describe")


def _composed(command: str, arguments: list[str]) -> int:
    from pipelines import config

    config.register()
    overrides = _spelled_out(command, arguments)
    if any(argument.startswith("-") for argument in arguments):
        return _hydra(command, overrides)
    cfg = _compose(command, overrides)
    from pipelines import commands

    return commands.sweep(cfg) if command == "sweep" else commands.run(cfg)


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
        from pipelines import commands

        try:
            status = commands.sweep(cfg) if command == "sweep" else commands.run(cfg)
        except PerfsweepError as error:
            print(f"perfsweep {command}: {error}", file=sys.stderr)
            status = 2
        sys.exit(status)

    sys.argv = [f"perfsweep {command}", *overrides]
    composed()
    return 0


def _spelled_out(command: str, arguments: list[str]) -> list[str]:
    """Overrides as Hydra needs them: free keys with ``++``, workloads from outside and a workload's own sweeps by group."""
    workload = next((a.partition("=")[2] for a in arguments if a.startswith("workload=")), "digits")
    external = not _exists(f"workload/{workload}.yaml")
    spelled = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name == "workload" and equals and external:
            spelled += ["workload=external", f"workload.name='{value}'"]
        elif name == "sweep" and equals and _exists(f"sweep/{workload}/{value}.yaml"):
            spelled.append(f"sweep={workload}/{value}")
        elif re.match(r"(toggles|axes)\.", name) or (external and name.startswith("workload.")):
            spelled.append(f"++{argument}")
        else:
            spelled.append(argument)
    if command == "sweep" and workload != "digits" and not any(a.startswith(("sweep=", "-")) for a in arguments):
        spelled.append(f"sweep={workload}/demo" if _exists(f"sweep/{workload}/demo.yaml") else "sweep=ablation")
    return spelled


def _exists(config_file: str) -> bool:
    from importlib.resources import files

    return files("conf").joinpath(config_file).is_file()


def _paragraph(error: Exception) -> str:
    """Hydra's message without its hints about tracebacks, in one paragraph."""
    cause = error.__cause__ if error.__cause__ is not None else None
    text = str(error) if not cause else f"{error} {cause}"
    lines = [line.strip() for line in text.partition("Config search path")[0].splitlines()]
    kept = [line for line in lines if line and not line.startswith(("full_key", "object_type", "reference_type", "Set the env"))]
    return " ".join(dict.fromkeys(kept))


if __name__ == "__main__":
    main()
