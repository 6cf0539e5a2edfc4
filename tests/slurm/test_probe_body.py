"""What a probe job finds on its node."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from perfsweep.slurm import probe_body

SILENT = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked by a proxy, and torch is not imported."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "PERFSWEEP_SCRATCH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(probe_body, "COUNT_GPUS", "print('warning'); print('2.13.0', 1)")


def test_a_node_answers_every_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,,2")
    found = probe_body.answers({"modules": ["json", "no_such_module", "sys"], "url": SILENT})
    assert found["missing"] == ["no_such_module"]
    assert found["visible"] == ["0", "2"]
    assert (found["torch"], found["scratch"]) == ("2.13.0 1", {})
    assert found["executable"] == sys.executable
    assert "refused" in found["network"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert probe_body.answers({"modules": [], "url": SILENT})["visible"] == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise SystemExit('no torch here')", "no torch here"),
        ("raise SystemExit(3)", "importing torch ended with status 3"),
        ("import time; time.sleep(60)", "importing torch took longer than 0.2 s"),
    ],
)
def test_a_torch_that_cannot_be_imported_says_why(
    monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    monkeypatch.setattr(probe_body, "COUNT_GPUS", code)
    if "sleep" in code:
        monkeypatch.setattr(probe_body, "TORCH_S", 0.2)
    assert probe_body.torch_sees() == said


def test_scratch_is_written_and_its_space_is_told_in_gib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFSWEEP_SCRATCH", str(tmp_path))
    monkeypatch.setattr(
        probe_body.shutil, "disk_usage", lambda place: type("Usage", (), {"free": 5 * 2**29})()
    )
    assert probe_body.scratch() == {"path": str(tmp_path), "free_gib": 2.5}
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("PERFSWEEP_SCRATCH", str(tmp_path / "nowhere"))
    assert probe_body.scratch() == {"path": str(tmp_path / "nowhere"), "error": "No such file or directory"}


class Forbids(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(403 if self.path == "/no" else 200)

    def log_message(self, *args: object) -> None:
        return


def test_a_server_that_answers_anything_was_reached() -> None:
    with HTTPServer(("127.0.0.1", 0), Forbids) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        assert [probe_body.reached(address + path) for path in ("/", "/no")] == ["", ""]
        server.shutdown()
    assert probe_body.reached("nonsense") == "unknown url type: 'nonsense'"
