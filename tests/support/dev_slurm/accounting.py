"""Accounting for a development cluster: slurmdbd on a MariaDB of its own, without a network port."""

from __future__ import annotations

import getpass
import shutil
import subprocess
from collections.abc import Mapping

from dev_slurm.daemons import binary, daemonise, pid_in, spawn, until
from dev_slurm.settings import Settings

FIRST_START_S, INSTALL_S = 60.0, 300.0


def start(settings: Settings, env: Mapping[str, str]) -> None:
    """Start database and slurmdbd unless they run, and make the cluster known to them.

    Raises
    ------
    ClusterError
        A package is missing or a daemon does not come up.
    """
    _start_database(settings, env)
    if not pid_in(settings.pid_file("slurmdbd")):
        with_socket = {**env, "MYSQL_UNIX_PORT": str(_socket(settings)), "SLURM_CONF": str(settings.conf)}
        # slurmdbd looks for its file beside slurm.conf.
        daemonise([binary("slurmdbd")], with_socket, settings.root / "log" / "slurmdbd.out")
    until(lambda: _sacctmgr(settings, env, "show", "cluster") == 0, "an answer of slurmdbd", FIRST_START_S)
    user = getpass.getuser()
    for words in (
        ("add", "cluster", "dev"),
        ("add", "account", "bench"),
        ("add", "user", user, "account=bench"),
    ):
        _sacctmgr(settings, env, *words)  # status 1 where it exists already


def _start_database(settings: Settings, env: Mapping[str, str]) -> None:
    data, log = settings.root / "mysql", settings.root / "log" / "mariadb.log"
    user = getpass.getuser()
    temporary = settings.root / "run" / "mysql.tmp"
    temporary.mkdir(exist_ok=True)
    env = {**env, "TMPDIR": str(temporary)}  # in /tmp, one that starts removes tables of others
    if not data.exists():
        fresh = data.with_name("mysql.new")  # one that was left half made would never start
        shutil.rmtree(fresh, ignore_errors=True)
        install = [
            binary("mariadb-install-db"),
            "--no-defaults",
            f"--datadir={fresh}",
            f"--user={user}",
            "--skip-test-db",
        ]
        daemonise(
            [*install, "--auth-root-authentication-method=socket", f"--auth-root-socket-user={user}"],
            env,
            log,
            INSTALL_S,
        )
        fresh.rename(data)
    if not pid_in(settings.pid_file("mariadbd")):
        command = [
            *(binary("mariadbd"), "--no-defaults", "--skip-networking", f"--user={user}"),
            f"--datadir={data}",
            f"--socket={_socket(settings)}",
            f"--pid-file={settings.pid_file('mariadbd')}",
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-buffer-pool-size=64M",
        ]
        spawn(command, env, log)
    until(lambda: _ping(settings), "an answer of MariaDB", FIRST_START_S)


def _socket(settings: Settings):
    return settings.root / "run" / "mysql.socket"


def _ping(settings: Settings) -> bool:
    command = [binary("mariadb-admin"), "--no-defaults", f"--socket={_socket(settings)}", "ping"]
    return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0


def _sacctmgr(settings: Settings, env: Mapping[str, str], *words: str) -> int:
    command = [binary("sacctmgr"), "-i", *words]
    return subprocess.run(
        command, env=dict(env), capture_output=True, stdin=subprocess.DEVNULL, timeout=20, check=False
    ).returncode
