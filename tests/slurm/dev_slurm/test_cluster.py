"""The development cluster: up in a second, any number of times, side by side; gone traceless."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import alive
from dev_slurm.cluster import DevCluster, remove, settings_in
from dev_slurm.daemons import pid_in
from dev_slurm.settings import Settings
from omegaconf import OmegaConf

from perfsweep.slurm.errors import ClusterError

ROOT = Path(__file__).parents[3]

MakeCluster = Callable[..., DevCluster]


def pids(cluster: DevCluster) -> dict[str, int | None]:
    return {file.stem: pid_in(file) for file in (cluster.settings.root / "run").glob("*.pid")}


def test_a_pack_of_its_profile_fits_into_a_node() -> None:
    """As many arms as a pack may have took 5.4 GB there, which counts shared pages in each process."""
    memory = str(OmegaConf.load(ROOT / "conf/cluster/dev.yaml")["memory"])
    assert memory.endswith("G") and 6000 <= 1024 * int(memory[:-1]) <= Settings(Path("/tmp/c")).memory_mb


def test_down_leaves_no_process_it_comes_up_again_and_a_second_time_starts_nothing(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster()
    cluster.client("sbatch", "-o", "/dev/null", "--wrap=trap '' TERM; while :; do sleep 1; done")
    before = pids(cluster)
    assert set(before) == {"munged", "slurmctld", "slurmd-n1", "slurmd-n2"}
    for _ in range(2):
        cluster.down()
        assert not [pid for pid in before.values() if pid and alive(pid)]
    cluster.up()
    again = pids(cluster)
    assert all(again.values()) and not set(again.values()) & set(before.values())
    cluster.up()
    assert pids(cluster) == again


def test_a_port_in_use_is_named(cluster: DevCluster) -> None:
    second = DevCluster(
        Settings(Path(tempfile.mkdtemp(prefix="ps-", dir="/tmp")), port=cluster.settings.port)
    )
    try:
        with pytest.raises(ClusterError, match=f"port {cluster.settings.port} is taken"):
            second.up()
    finally:
        remove(second)


def test_a_folder_too_deep_for_a_socket_is_refused() -> None:
    room = 107 - len(str(Settings(Path("/tmp/x")).munge_socket))  # what Linux takes for a socket's address
    assert len(str(Settings(Path("/tmp/x" + "x" * room)).munge_socket)) == 107
    with pytest.raises(ClusterError, match="too deep"):
        Settings(Path("/tmp/xx" + "x" * room))


def test_down_where_no_cluster_is_says_so(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="make slurm-up"):
        settings_in(tmp_path)
