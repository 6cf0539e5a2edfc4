"""``python -m storm storm|faults|soak|list``: behind `make storm`, `make faults` and `make soak`."""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from dev_slurm.cluster import DevCluster, installed
from dev_slurm.daemons import binary
from dev_slurm.settings import Settings, default_root

from perfsweep.slurm.errors import ClusterError
from storm import (
    cases_decisions,
    cases_jobs,
    cases_nodes,
    cases_submissions,
    file_faults,
    process_faults,
    slurm_faults,
    soak,
    tables,
    tracking_faults,
)
from storm.driver import Storm
from storm.fault import FAULTS, Fault
from storm.stage import CASES, Case, played
from storm.world import world

_REGISTERED = (
    cases_jobs,
    cases_submissions,
    cases_decisions,
    cases_nodes,
    file_faults,
    process_faults,
    slurm_faults,
    tracking_faults,
)
GROWN = 0.01
"""Growth that a soak may show."""


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


def _storm(given: argparse.Namespace) -> int:
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    if unknown := sorted({*given.faults} - FAULTS.keys()):
        print(f"storm: {unknown[0]} is no fault; choose from: {', '.join(FAULTS)}", file=sys.stderr)
        return 2
    with _cluster(given.port if given.slurm else None) as cluster, world(cluster) as place:
        outcome = Storm(place, seed, _chosen(given, cluster), _say).rage(given.minutes * 60)
    names = f" --faults {' '.join(given.faults)}" if given.faults else ""
    make = f"make storm SEED={seed} MINUTES={given.minutes:g}{' SLURM=1' if given.slurm else ''}"
    print("\n".join(tables.of_storm(outcome, f'{make} ARGS="{names.strip()}"' if names else make)))
    return int(bool(outcome.violations))


def _chosen(given: argparse.Namespace, cluster: DevCluster | None) -> list[Fault]:
    """The faults of a storm, always in the same order."""
    ours = [FAULTS[name] for name in sorted(given.faults or FAULTS)]
    accounting = cluster is not None and cluster.settings.accounting
    return [
        one for one in ours if (cluster or not one.slurm) and (accounting or one.name != "slurmdbd_killed")
    ]


def _faults(given: argparse.Namespace) -> int:
    if unknown := sorted({*given.cases} - CASES.keys()):
        print(f"faults: {unknown[0]} is no case; choose from: {', '.join(CASES)}", file=sys.stderr)
        return 2
    wanted = [CASES[id] for id in given.cases or CASES]
    wrong = 0
    with _cluster(given.port) as cluster:
        assert cluster
        for time in range(given.times):
            print(f"\nplay {time + 1} of {given.times}\n\n{tables.CASE_HEAD}", flush=True)
            wrong += sum(_play(cluster, one) for one in wanted)
    print(f"\n{wrong} of {len(wanted) * given.times} went wrong")
    return int(wrong > 0)


def _play(cluster: DevCluster, one: Case) -> bool:
    with world(cluster) as place:
        done = played(place, one)
    print(tables.of_case(done), flush=True)
    return bool(done.problems)


def _soak(given: argparse.Namespace) -> int:
    with world() as place:
        growths, status = soak.soaked(place, given.trials, _say)
        if status:
            place.held["status"] = str(status)
    print("\n".join(tables.of_soak(growths)))
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
