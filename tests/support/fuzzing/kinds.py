"""Kinds of files that perfsweep reads: how one comes to be, how it is read, which damaged readings hold."""

from __future__ import annotations

import contextlib
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from measured import compared, simulated

from perfsweep.pipelines.analysis import baselines, collect
from perfsweep.pipelines.analysis.compare import Comparison
from perfsweep.pipelines.config import composition, validation
from perfsweep.pipelines.config.types import (
    ClusterConfig,
    DesignConfig,
    DoctorCommand,
    MeasureConfig,
    SweepCommand,
    SweepConfig,
)
from perfsweep.pipelines.publish.wandb_file import extent, framed, payloads
from perfsweep.pipelines.store.provenance import read_provenance
from perfsweep.pipelines.store.records import (
    Event,
    Kind,
    Outcome,
    SweepFolder,
    read_evidence,
    read_iterations,
)
from perfsweep.slurm import client
from perfsweep.slurm.journal import Journal, Verdict
from perfsweep.slurm.states import Action, End


class FileKind(ABC):
    """One kind of file.

    Attributes:
        name: How it is called on the command line.
    """

    name: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = self.write()
        self.whole = self.file.read_bytes()
        self.right = self.read()

    @abstractmethod
    def write(self) -> Path:
        """Write a whole one in the folder."""

    @abstractmethod
    def read(self) -> Any:
        """What perfsweep makes of the file; its own errors are for the user."""

    def holds(self, found: Any) -> bool:
        """Whether a reading of the damaged file says nothing that the whole one does not."""
        return found == self.right


def sweep(folder: Path) -> SweepFolder:
    """A measured sweep of two arms over four rounds."""
    command = SweepCommand(
        workload={"name": "toys.spinner:Spinner"},
        measure=MeasureConfig(rounds=4, iterations=8, warmup_max=10),
        cluster=ClusterConfig(executor="inprocess"),
        sweep=SweepConfig(name="toy", designs=[DesignConfig("one_at_a_time", levels={"work": ["single"]})]),
        runs=str(folder),
    )
    return simulated(command, lambda levels: 1.0 if levels["work"] == "single" else 2.0, iterations=8)[0]


def answer(comparison: Comparison) -> list[Any]:
    """What a person reads first of a comparison."""
    return [(one.ratio, one.low, one.high, one.rounds, one.memory_bytes) for one in comparison.effects]


class Record(FileKind):
    """A timing trial's record: with a damaged one the sweep reads as without it."""

    name = "record"

    def write(self) -> Path:
        self.sweep = sweep(self.folder)
        return sorted(self.sweep.path.glob("trials/*/*-r002*/record.json"))[1]

    def read(self) -> Any:
        return answer(compared(self.sweep, self.sweep.read_manifest()))

    def holds(self, found: Any) -> bool:
        if not hasattr(self, "without"):
            damaged = self.file.read_bytes()
            self.file.unlink()
            self.without = self.read()
            self.file.write_bytes(damaged)
        return found in (self.right, self.without)


class Manifest(FileKind):
    """The plan of a sweep."""

    name = "manifest"

    def write(self) -> Path:
        self.sweep = sweep(self.folder)
        return self.sweep.manifest_file

    def read(self) -> Any:
        return self.sweep.read_manifest()


class Events(FileKind):
    """The progress of a pack: its damaged lines are missing, or it is refused."""

    name = "events"

    def write(self) -> Path:
        self.sweep = SweepFolder(self.folder)
        for number in range(6):
            event = Event(
                time=1.5 * number, arm="a", kind=Kind.TIMING, round=number, outcome=Outcome.OK, seconds=2.5
            )
            self.sweep.append_event("p000", event)
        return self.sweep.events_file("p000")

    def read(self) -> Any:
        return self.sweep.read_events("p000")[0]

    def holds(self, found: Any) -> bool:
        return all(event in self.right for event in found)


class Iterations(FileKind):
    """The times of a trial's iterations."""

    name = "iterations"

    def write(self) -> Path:
        self.sweep = sweep(self.folder)
        return next(self.sweep.path.glob("trials/*/*-r002*/iterations.npz"))

    def read(self) -> Any:
        return {name: array.tolist() for name, array in read_iterations(self.file.parent).items()}


class EvidenceFile(FileKind):
    """What a trial computed."""

    name = "evidence"

    def write(self) -> Path:
        return next(sweep(self.folder).path.glob("trials/*/*evidence*/evidence.npz"))

    def read(self) -> Any:
        found = read_evidence(self.file.parent)
        return (
            {name: np.asarray(one).tolist() for name, one in found.tensors.items()},
            found.numbers,
            found.parts,
        )


class SlurmJournal(FileKind):
    """What was submitted and how it ended: damaged lines say nothing."""

    name = "journal"

    def write(self) -> Path:
        journal = Journal(self.folder / "journal.jsonl")
        for array, names in enumerate((["p000", "p001"], ["p002"])):
            submission = journal.submitting(names, None, "cluster", {"time_min": 60})
            journal.submitted(submission.token, str(100 + array))
            journal.ended(submission, 0, Verdict(End.DONE, Action.FINAL, "done"), "n1")
        return journal.file

    def read(self) -> Any:
        journal = Journal(self.file)
        return journal.verdicts, {token: (one.array, one.names) for token, one in journal.submissions.items()}

    def holds(self, found: Any) -> bool:
        verdicts, submissions = self.right
        return found[0].items() <= verdicts.items() and all(
            token in submissions and array in (None, submissions[token][0]) and names == submissions[token][1]
            for token, (array, names) in found[1].items()
        )


class WandbFile(FileKind):
    """An offline run of W&B, in its framing: records up to the first damaged one, each as it was written.

    One that stands twice is none that the framing could tell; W&B takes rows by their steps.
    """

    name = "wandb"

    def write(self) -> Path:
        file = self.folder / "run-x.wandb"
        file.write_bytes(framed([bytes([number]) * 40 for number in range(1, 30)]))
        return file

    def read(self) -> Any:
        extent(self.file)
        return list(payloads(self.file.read_bytes()))

    def holds(self, found: Any) -> bool:
        return all(record in self.right for record in found)


class Baseline(FileKind):
    """A stored baseline."""

    name = "baseline"

    def write(self) -> Path:
        folder = sweep(self.folder / "runs")
        manifest = folder.read_manifest()
        trials = collect.collect(folder, manifest)
        own = baselines.baseline_of(manifest, "step", trials, read_provenance(folder.config_file, []))
        baselines.store(own, self.folder / "baseline.json")
        return self.folder / "baseline.json"

    def read(self) -> Any:
        return baselines.load(self.file)


class Site(FileKind):
    """A user's YAML of a cluster: whatever stands there is composed, or refused in a sentence."""

    name = "yaml"
    TEXT = """# @package cluster
defaults: [slurm]
partition: gpu
time_min: 90
memory: 32G
sbatch: ["--qos=long", "--mail-user=${oc.env:HOME}"]
env_set: {OMP_NUM_THREADS: "4"}
setup:
  - module load cuda/12
  - source ~/venv/bin/activate
"""

    def write(self) -> Path:
        (self.folder / "perfsweep.yaml").write_text("conf: configs\n")
        file = self.folder / "configs/cluster/mine.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(self.TEXT)
        return file

    def read(self) -> Any:
        with contextlib.chdir(self.folder):
            return validation.typed(composition.compose("doctor", ["cluster=mine"]), DoctorCommand).cluster

    def holds(self, found: Any) -> bool:
        return True  # any other value is what the user wrote


class Queue(FileKind):
    """What squeue, sacct and scontrol print: rows of it or none, whatever the rest is."""

    name = "slurm"
    TEXT = (
        "62|0|100|RUNNING|None|n1|perfsweep:abc|demo.abc|2026-11-23T14:05:00\n"
        "62|1-3%2|101|PENDING|Priority||perfsweep:abc|demo.abc|N/A\n"
        "62_4|104|COMPLETED|0:0|n2|perfsweep:abc|demo.abc\n"
        "JobId=105 ArrayJobId=62 ArrayTaskId=5 JobName=demo JobState=RUNNING NodeList=n1 Comment=x\n"
    )

    def write(self) -> Path:
        file = self.folder / "answer.txt"
        file.write_text(self.TEXT)
        return file

    def read(self) -> Any:
        text = self.file.read_bytes().decode(errors="replace")
        parsers = (client.parse_queue, client.parse_accounting, client.parse_jobs)
        return [list(parse(text)) for parse in parsers]

    def holds(self, found: Any) -> bool:
        return all(isinstance(row, client.Sighting) for rows in found for row in rows)


KINDS = {kind.name: kind for kind in FileKind.__subclasses__()}


def fresh(name: str, folder: Path) -> FileKind:
    """Write a whole file of a kind below a folder that is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return KINDS[name](folder)
