"""``python -m storm storm|faults|soak|list``: for `make storm`, `make faults` and `make soak`."""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parents[1]))

from dev_slurm.cluster import DevCluster, installed
from dev_slurm.daemons import binary
from dev_slurm.settings import Settings, default_root

from perfsweep.slurm.errors import ClusterError
from storm import soak
from storm.cases import CASES
from storm.faults import FAULTS
from storm.stage import played
from storm.storm import Storm
from storm.world import world

T = TypeVar("T")
GROWN = 0.1
"""Growth that a soak may show: a shared machine shows up to half of that by itself."""


def main(arguments: list[str]) -> int:
    """Run one command; status 1 where something was found, 2 where it cannot be run."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended then too
    parser = argparse.ArgumentParser(prog="python -m storm", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    storm = commands.add_parser("storm", help="sweeps under many faults at once")
    storm.add_argument("--seed", type=int, default=None, help="of all that is drawn (default: a new one)")
    storm.add_argument("--minutes", type=float, default=20.0)
    storm.add_argument("--faults", nargs="*", default=[], metavar="NAME", help="only these (default: all)")
    faults = commands.add_parser("faults", help="each fault of the two Slurm lists alone")
    faults.add_argument("cases", nargs="*", metavar="ID", help="only these (default: all)")
    faults.add_argument("--times", type=int, default=1, help="how often all of them are played")
    soaking = commands.add_parser("soak", help="thousands of short trials in one sweep")
    soaking.add_argument("--trials", type=int, default=5000)
    commands.add_parser("list", help="names of faults and cases")
    for one in (storm, faults):
        one.add_argument("--port", type=int, default=Settings.port, help="of slurmctld")
    storm.add_argument("--slurm", action="store_true", help="with a development Slurm")
    given = parser.parse_args(arguments)
    try:
        return {"storm": _storm, "faults": _faults, "soak": _soak, "list": _list}[given.command](given)
    except ClusterError as error:
        print(f"{given.command}: {error}", file=sys.stderr)
        return 2


def _known(what: str, given: list[str], known: Mapping[str, T]) -> list[T]:
    """What is meant by names, all of it by default."""
    if unknown := sorted({*given} - known.keys()):
        raise ClusterError(f"{unknown[0]} is no {what}; choose from: {', '.join(known)}")
    return [known[name] for name in given or known]


def _storm(given: argparse.Namespace) -> int:
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    chosen = sorted(_known("fault", given.faults, FAULTS), key=lambda one: one.name)
    with _cluster(given.port if given.slurm else None) as cluster, world(cluster) as place:
        silent = set() if cluster and cluster.settings.accounting else {"slurmdbd_killed"}
        able = [one for one in chosen if (cluster or not one.slurm) and one.name not in silent]
        outcome = Storm(place, seed, able, _say).rage(given.minutes * 60)
    counts = ", ".join(f"{name} {count}" for name, count in sorted(outcome.sweeps.items()))
    ends = ", ".join(f"{status}: {count}" for status, count in sorted(outcome.statuses.items()))
    print("| seed | minutes | faults | sweeps | commands by status | trials | rows in W&B | violations |")
    print("|---|---|---|---|---|---|---|---|")
    figures = (seed, f"{outcome.seconds / 60:.1f}", outcome.struck.total(), counts, ends, outcome.trials)
    print("|", " | ".join(map(str, (*figures, outcome.rows, len(outcome.violations)))), "|")
    print("\n| fault | struck | found no target |\n|---|---|---|")
    for name in sorted(outcome.struck | outcome.missed):
        print(f"| {name} | {outcome.struck[name]} | {outcome.missed[name]} |")
    if outcome.violations:
        print("\n" + "\n".join(f"VIOLATION {one}" for one in outcome.violations))
        names = f' ARGS="--faults {" ".join(given.faults)}"' if given.faults else ""
        slurm = " SLURM=1" if given.slurm else ""
        print(f"replay: make storm SEED={seed} MINUTES={given.minutes:g}{slurm}{names}")
    return int(bool(outcome.violations))


def _faults(given: argparse.Namespace) -> int:
    wanted = _known("case", given.cases, CASES) * given.times
    wrong = 0
    with _cluster(given.port) as cluster:
        print("| # | fault | outcome | records found of wanted | s |\n|---|---|---|---|---|", flush=True)
        for one in wanted:
            with world(cluster) as place:
                done = played(place, one)
            wrong += bool(done.problems)
            outcome = f"**WRONG**: {'; '.join(done.problems)}" if done.problems else done.outcome
            cells = (one.id, one.fault, outcome.replace("|", "/"), done.tally, f"{done.seconds:.0f}")
            print("|", " | ".join(map(str, cells)), "|", flush=True)
    print(f"\n{wrong} of {len(wanted)} went wrong")
    return int(wrong > 0)


def _soak(given: argparse.Namespace) -> int:
    with world() as place:
        growths, status = soak.soaked(place, given.trials, _say)
        if status:
            place.kept["status"] = str(status)
    print("| figure | second quarter | last quarter | growth |\n|---|---|---|---|")
    for one in growths:
        figures = (f"{value:.1f} {one.unit}".rstrip() for value in (one.second, one.last))
        print(f"| {one.what} | {' | '.join(figures)} | {one.share:+.1%} |")
    if status:
        print(f"the sweep ended with status {status}", file=sys.stderr)
    return int(bool(status) or any(one.share > GROWN for one in growths))


def _list(given: argparse.Namespace) -> int:
    for one in FAULTS.values():
        print(f"{one.name:28s} {one.doc}{' (Slurm)' if one.slurm else ''}")
    for case in CASES.values():
        print(f"{case.id:28s} {case.fault}: {case.expected}")
    return 0


@contextmanager
def _cluster(port: int | None) -> Iterator[DevCluster | None]:
    """A development Slurm of its own, with accounting where that is installed, and stopped at the end."""
    if port is None:
        yield None
        return
    if missing := installed():
        raise ClusterError(missing)
    quick = {"kill_wait_s": 2, "slurmd_timeout_s": 5, "max_array": 6, "min_job_age_s": 60}
    cluster = DevCluster(Settings(default_root(), port, accounting=_has_accounting(), **quick))
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


def _has_accounting() -> bool:
    try:
        return bool([binary(name) for name in ("slurmdbd", "mariadbd", "mariadb-install-db")])
    except ClusterError:
        return False


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
