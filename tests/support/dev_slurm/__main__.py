"""``python -m dev_slurm up|down|status|shell``: what `make slurm-up` runs."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from pathlib import Path

from dev_slurm.cluster import DevCluster, settings_in
from dev_slurm.settings import Settings, default_root
from perfsweep.slurm.errors import ClusterError


def main(arguments: list[str]) -> int:
    """Run one command; status 2 where the cluster cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m dev_slurm", description=__doc__)
    parser.add_argument("command", choices=("up", "down", "status", "shell"))
    parser.add_argument(
        "--root", type=Path, default=default_root(), help="folder of all its state (default: %(default)s)"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=Settings.port,
        help="of the controller; nodes follow (default: %(default)s)",
    )
    parser.add_argument("--accounting", action="store_true", help="with slurmdbd and MariaDB")
    given = parser.parse_args(arguments)
    try:
        return _act(given)
    except ClusterError as error:
        print(f"slurm-{given.command}: {error}", file=sys.stderr)
        return 2


def _act(given: argparse.Namespace) -> int:
    root = given.root.absolute()
    if given.command == "up":
        start = time.monotonic()
        settings = Settings(root=root, port=given.port, accounting=given.accounting)
        DevCluster(settings).up()
        print(f"Slurm is up in {time.monotonic() - start:.2f} s: SLURM_CONF={settings.conf}")
        return 0
    if given.command == "down" and not (root / "etc" / "slurm.conf").exists():
        return 0
    cluster = DevCluster(dataclasses.replace(settings_in(root)))
    if given.command == "down":
        cluster.down()
        print(f"Slurm of {root} is down")
    elif given.command == "status":
        print(cluster.client("sinfo"), cluster.client("squeue", "-t", "all"), sep="", end="")
    else:
        os.execvpe(os.environ.get("SHELL", "/bin/sh"), [os.environ.get("SHELL", "/bin/sh")], cluster.env)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
