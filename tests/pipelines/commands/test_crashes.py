"""A workload that raises is told with type, message and its own line; the log has the traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from toys import defective

from perfsweep.pipelines import cli

pytestmark = pytest.mark.slow

SWEEP = "measure.rounds=3 measure.servers=1 measure.iterations=4 measure.repeats=0 tracking=disabled"
LINES = Path(defective.__file__).read_text().splitlines()
PLACE = f"defective.py:{next(n for n, line in enumerate(LINES, 1) if 'told to break' in line)},"


@pytest.mark.parametrize(
    "typed",
    ["run toys.defective:Raises measure=quick", f"sweep toys.defective:Raises sweep=ablation {SWEEP}"],
    ids=["run", "sweep"],
)
def test_what_the_users_code_raised_is_on_the_terminal_and_in_the_log(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(typed.split())
    assert ended.value.code == 1
    said = capsys.readouterr().out
    message = "baseline: failed: ValueError: the toy was told to break: [batch, dim] is no shape [/batch]"
    assert message in " ".join(said.split())
    assert PLACE in "".join(said.split())
    log = next(tmp_path.glob("runs/*/trials/*/*/log.txt")).read_text()
    assert "Traceback (most recent call last)" in log
    assert "ValueError: the toy was told to break" in log
