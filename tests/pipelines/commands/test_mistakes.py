"""Mistakes that people make: the command, and what they are told: one sentence with the remedy."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typed import ended

from perfsweep.pipelines.commands.catalog import COMMANDS, Composed
from perfsweep.pipelines.config import spelling

FILES = {
    "my_digits.py": """
from perfsweep.workloads.api import Level, Toggle
from perfsweep.workloads.digits.workload import Digits

class MyDigits(Digits):
    def build(self, config, levels, context):
        return super().build(config, levels, context)

class Uncounted(Digits):
    claims = ()
    toggles = (Toggle("neat", (Level("off"), Level("on", witness="microsteps")), "nothing", "mine"),)
""",
    "my_digits.yaml": "sweeps:\n  quick: {toggles: [amp]}\n  long: {toggles: [compile]}\n",
    "needs_package.py": "import no_such_package\n",
    "boom.py": "import math\nROOT = math.sqrt(-1)\n",
    "half.py": "class Half(\n",
    "broken.yaml": "path: train.py\nargs: [--lr\nsweeps: {}\n",
    "words.yaml": "path: train.py\nlernrate: 3\n",
    "list.yaml": "- 1\n",
    "train.py": "",
    "perfsweep/mine.py": "",
    "stray/perfsweep.yaml": "overrides:\n  - cluster=[\n",
    "rows/perfsweep.yaml": "overrides:\n  - cluster.executer=slurm\n",
    "torn/perfsweep.yaml": "overrides:\n  - cluster=local\n - name=x\n",
    "extra/perfsweep.yaml": "confs: configs\n",
    "away/perfsweep.yaml": "conf: configs\n",
    "site/perfsweep.yaml": "conf: configs\n",
    "site/configs/cluster/site.yaml": "partition: gpu\n  time_min: 3\n",
    "site/configs/cluster/typo.yaml": "defaults: [slurm]\nmem_gib: 3\n",
    "site/configs/cluster/hours.yaml": "defaults: [slurm]\ntime_min: two hours\n",
    "site/configs/cluster/rows.yaml": "- partition\n- gpu\n",
    "site/configs/cluster/none.yaml": "null: 3\n",
}
"""What lies in the folder where the commands are typed, and in folders below it."""

DIGITS = "sweep workload=digits "

BEFORE_HYDRA = [
    ("swep", "swep is no command; did you mean sweep? choose from: run, sweep"),
    ("sweep workload=digitz", "workload=digitz is unknown; did you mean digits? choose from: command"),
    ("judge main HEAD", "which workload? name your own"),
    ("sweep digits demo", "demo: options are written NAME=VALUE; did you mean sweep=demo?"),
    (DIGITS + "sweep=demos", "sweep=demos is unknown; did you mean demo? choose from: demo, gpu"),
    (
        "sweep workload=my_digits:MyDigits sweep=quik",
        "sweep=quik is unknown; did you mean quick? choose from: quick, long",
    ),
    ("sweep workload=my_digits", "workload=my_digits is unknown; did you mean my_digits:MyDigits?"),
    (DIGITS + "meassure.rounds=3", "meassure is unknown; did you mean measure? choose from: workload"),
    (DIGITS + "measure=quickk", "measure=quickk is unknown; did you mean quick? choose from: default"),
    (DIGITS + "measure.round=3", "measure.round is unknown; did you mean rounds? measure has: rounds"),
    (DIGITS + "rounds=3", "rounds is unknown; did you mean measure.rounds? choose from"),
    (DIGITS + "--rounds 3", "--rounds is no option of perfsweep sweep; write measure.rounds=3"),
    (
        DIGITS + "--batch-size 3",
        "--batch-size is no option of perfsweep sweep; options are written FIELD=VALUE",
    ),
    (DIGITS + "-m", "-m: one sweep measures several levels: axes.NAME=[LEVEL,LEVEL]"),
    (DIGITS + "axes.amp=off,bf16", "several values are a list: write 'axes.amp=[off,bf16]'"),
    (
        DIGITS + "axes.amp=[off, bf16]",
        "a closing ] is missing: write 'axes.amp=[off,bf16]'; the shell splits",
    ),
    (DIGITS + "axes.amp=off,bf16]", "axes.amp=off,bf16]: ] closes nothing"),
    (DIGITS + "tracking.project='mine", "the quote ' has no end; add ', or take it away"),
    ("sweep workload=script:nothing.yaml", "nothing.yaml does not exist"),
    ("sweep workload=script:broken.yaml", "broken.yaml line 3 is no YAML"),
    ("sweep workload=script:list.yaml", "list.yaml must hold a mapping of names to values"),
    ("sweep workload=scrpt:train.yaml", "scrpt is no workload; did you mean script?"),
    ("stray$ " + DIGITS, "stray/perfsweep.yaml: cluster=[: a closing ] is missing"),
    ("rows$ " + DIGITS, "rows/perfsweep.yaml: cluster.executer is unknown; did you mean executor?"),
    ("torn$ " + DIGITS, "torn/perfsweep.yaml line 3 is no YAML"),
    ("extra$ " + DIGITS, "extra/perfsweep.yaml: confs is unknown; it has conf and overrides"),
    ("away$ " + DIGITS, "away/perfsweep.yaml: conf=configs is no folder; create it, or remove the line"),
    ("compare nowhere", "nowhere is no folder of a sweep: it has no manifest.jsonl; sweeps lie under runs/"),
    (
        "compare runs/x --agianst runs/y",
        "No such option '--agianst'. (Did you mean one of: '--against', '--margin'?)",
    ),
    ("compare runs/x --margin 5%", "5% is no share such as 0.05"),
    ("status", "Missing argument 'SWEEP'. See perfsweep status --help."),
    ("status nowhere", "nowhere is no folder of a sweep"),
    ("profile --arm naive", "--arm needs the folder of the sweep that the arm is of"),
    ("selftest --budget 0", "0 is no positive number of seconds"),
    ("completion tcsh", "tcsh"),
    ("new 9lives", "9lives"),
    ("new perfsweep", "perfsweep is perfsweep itself: choose another name"),
    ("run digits sweep=demo", "sweep is an option of perfsweep sweep, and not of run; choose from: workload"),
    ("check digits --toggles ,", "--toggles holds no name; write those of toggles, as --toggles amp,compile"),
    ("list digits", "Got unexpected extra argument (digits). See perfsweep list --help."),
    (
        "history nowhere",
        "nowhere: No such file or directory; give a sweep's folder, or a file that `perfsweep",
    ),
    ("compare nowhere --json --csv", "--json and --csv are different answers; ask for one at a time"),
    (
        "comment nothing.json",
        "nothing.json cannot be read (No such file or directory); write it by: perfsweep",
    ),
]
"""Told before Hydra or torch is imported; ``folder$`` stands in front of what is typed in a folder below."""

COMPOSED = [
    (DIGITS + "measure.rounds=none", "measure.rounds=none is not a whole number"),
    (DIGITS + "measure.rounds=0", "measure.rounds=0 must be at least 1"),
    (DIGITS + "dry_run=perhaps", "dry_run=perhaps is not true or false"),
    (DIGITS + "retry=failed", "retry=failed is no list: write 'retry=[failed]'"),
    (
        DIGITS + "tracking.mode=maybe",
        "tracking.mode=maybe is unknown; choose from: offline, online, disabled",
    ),
    (DIGITS + "tracking.project=${mine}", "tracking.project: what it refers to with ${...} does not exist"),
    (DIGITS + "measure.rounds=a[b]", "measure.rounds=a[b] cannot be read; write it as FIELD=VALUE"),
    ("site$ " + DIGITS + "cluster=site", "configs/cluster/site.yaml line 2 is no YAML"),
    ("site$ " + DIGITS + "cluster=typo", "cluster/typo.yaml: cluster.mem_gib is unknown; did you mean"),
    (
        "site$ " + DIGITS + "cluster=hours",
        "cluster/hours.yaml: cluster.time_min=two hours is not a whole number",
    ),
    ("site$ " + DIGITS + "cluster=rows", "cluster/rows.yaml must hold a mapping of names to values"),
    ("site$ " + DIGITS + "cluster=none", "cluster/none.yaml cannot be read: Incompatible key type"),
    ("run workload=script", "workload.path is missing: give it as workload.path=VALUE"),
]

PLANNED = [
    ("sweep", "which workload? `perfsweep sweep workload=digits` would measure its sweep demo:"),
    (DIGITS + "toggles.ampp=bf16", "toggles.ampp is unknown; did you mean amp?"),
    (DIGITS + "workload.batch_size=many", "workload.batch_size=many is not a whole number"),
    (DIGITS + "runs=/proc/nowhere", "runs=/proc/nowhere: cannot write"),
    ("sweep workload=script:words.yaml", "words.yaml: lernrate is unknown"),
    (
        "sweep my_digits:Uncounted sweep=ablation",
        "toggles.neat=on: its witness microsteps is no counter; did you mean micro_steps?",
    ),
    (
        "sweep workload=needs_package:Own",
        "module needs_package needs the package no_such_package, which is not installed",
    ),
    ("sweep workload=boom:Own", "module boom fails when imported: ValueError: math domain error ("),
    ("sweep workload=boom:Own", "boom.py:2: ROOT = math.sqrt(-1))"),
    ("sweep workload=half:Half", "(half.py, line 1)"),
    ("sweep workload=perfsweep.mine:Own", "has the name of perfsweep, which is imported in its place"),
    ("profile digits profile.slice=banana", "profile.slice=banana is unknown; choose from: auto, step, job"),
    (DIGITS + "axes.num_workers=[-1]", "choose from: 0, 2, or any integer from 0 to 64"),
    (DIGITS + "axes.environment=[.venv,.venv-b]", ".venv does not exist; name an interpreter, the folder of"),
    ("script nothing.py", "nothing.py does not exist; did you mean train.py?"),
    ("check digits measure.timeot_s=3", "measure.timeot_s is unknown; did you mean timeout_s?"),
]

OTHERS_WORDS = re.compile(
    r"hydra|https?://|DictConfig|full_key|append|\+\w|ConfigKey|Traceback|multirun", re.I
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which somebody has made mistakes."""
    folder = tmp_path_factory.mktemp("typed")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def told(typed: str, folder: Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """What a person is told who types this; status 2, one sentence, on stderr."""
    below, dollar, rest = typed.rpartition("$ ")
    words = (rest if dollar else typed).split()
    patch.chdir(folder / below)
    patch.setattr(sys, "path", [*sys.path, str(folder)])
    for file in folder.glob("*.py"):  # a test before this one may have imported its own
        patch.delitem(sys.modules, file.stem, raising=False)
    status, said = ended(*words), capsys.readouterr()
    assert (status, len(said.err.strip().splitlines())) == (2, 1), said
    assert not OTHERS_WORDS.search(said.err), said.err
    _names_what_exists(words[0], said.err)
    return said.err


def _names_what_exists(name: str, text: str) -> None:
    """Advice names only options that the command has, or the one that is named in front of them."""
    refused = {"--rounds", "--batch-size", "--iterations", "--agianst"}
    named = re.split(r"perfsweep (\w+)", text)
    for other, said in [(name, named[0]), *zip(named[1::2], named[2::2], strict=True)]:
        command = COMMANDS.commands.get(other)
        own = {option for param in command.params for option in param.opts} if command else set()
        known = {*own, "--help", *spelling.FLAGS}
        assert not command or set(re.findall(r"(?<![\w-])--[a-z][\w-]*", said)) <= known | refused, text
    if isinstance(COMMANDS.commands.get(name), Composed):
        options = spelling.options(name)
        advised = re.findall(r"(?:write|with|mean) '?((?:measure|cluster|tracking|runs|name)[\w.]*)=", text)
        assert set(advised) <= set(options) | {"name" if "name" in options else "runs"}, text


CASES = [
    pytest.param(typed, message, marks=marks, id=f"{typed} {message[:9]}")
    for marks, rows in (((), BEFORE_HYDRA), (pytest.mark.slow, [*COMPOSED, *PLANNED]))
    for typed, message in rows
]
"""What is told before Hydra is imported is quick."""


@pytest.mark.parametrize(("typed", "message"), CASES)
def test_a_mistake_is_one_sentence(
    typed: str,
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert message in told(typed, folder, monkeypatch, capsys)


def test_a_full_disk_that_output_goes_to_is_said() -> None:
    command = f"{sys.executable} -m perfsweep.pipelines.cli list > /dev/full"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "the disk is full; free some space, or write elsewhere with TMPDIR" in line
