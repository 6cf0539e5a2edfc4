"""The second list, on two nodes: a job that loses one of them, or the step that spans both."""

from __future__ import annotations

from storm.stage import Stage, case, until

NOTICED_S = 60.0
"""A lost node or step is noticed within this time."""

RANKS = (
    *(
        "workload=toys.joined:Joined",
        "-workload.products",
        "axes.spread=[two]",
        "cluster.nodes=2",
        "cluster.memory=3G",
    ),
    *("measure.rounds=3", "measure.iterations=20", "cluster.env_allow=[PERFSWEEP_STORM,PERFSWEEP_TOY_FAULT]"),
)


@case("N1", "two nodes: a node is set down while both measure", "submitted again, each trial once")
def node_of_two(stage: Stage) -> str:
    process = stage.sweep(*RANKS, "cluster.requeue=false", "measure.rounds=5")
    stage.round_done()
    with stage.under("node_down"):
        until(lambda: stage.ends(), "its noticing", NOTICED_S)
    stage.ended(process)
    assert stage.ends() == ["node failed", "done"], stage.ends()
    return "submitted again, done"


@case("N2", "two nodes: the whole step is killed", "submitted again, each trial once")
def step_of_two(stage: Stage) -> str:
    process = stage.sweep(*RANKS, "measure.rounds=5")
    stage.round_done()
    stage.strike("kill_step")
    until(lambda: stage.ends(), "its noticing", NOTICED_S)
    stage.ended(process)
    assert stage.ends() == ["no result", "done"], stage.ends()
    return "submitted again, done"
