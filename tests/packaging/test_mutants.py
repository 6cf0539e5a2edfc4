"""What `make mutants` plants and which tests it asks: the tool that judges tests is judged too."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray", reason="mutants are drawn by cosmic-ray, which `make lint` installs")

from mutants import __main__ as command
from mutants.copies import KILLED, LONGER, QUICK, SURVIVED, UNTESTED, Copy, Tried
from mutants.copies import planted as in_place
from mutants.nearest import Nearest, holds_quick, sources
from mutants.positions import Mutant, sample

ROOT = Path(__file__).resolve().parents[2]
SOURCE = '''"""A module."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sum:
    """Sum of numbers, int | None."""

    start: int | None = None

    def of(self, numbers: list[int], skip: bool = False) -> int | None:
        if skip and not numbers:
            raise ValueError("nothing")
        numbers.sort(reverse=True)
        return sum(numbers, start=self.start or 1)
'''


@pytest.fixture
def planted(tmp_path: Path):
    (tmp_path / "own.py").write_text(SOURCE)
    return sample(tmp_path, [tmp_path / "own.py"], 40, seed=3)


def test_equal_seeds_plant_equal_mistakes(planted, tmp_path: Path) -> None:
    assert sample(tmp_path, [tmp_path / "own.py"], 40, seed=3) == planted
    assert sample(tmp_path, [tmp_path / "own.py"], 3, seed=4) != planted[:3]


def test_each_mistake_is_one_line_of_python_that_differs(planted) -> None:
    assert len(planted) > 8
    for one in planted:
        compile(one.text, "mutant", "exec")
        assert one.text != SOURCE and one.before != one.after
        assert one.before in SOURCE


def test_what_people_get_wrong_is_among_them(planted, tmp_path: Path) -> None:
    after = {one.after for seed in range(8) for one in sample(tmp_path, [tmp_path / "own.py"], 40, seed)}
    assert "if True:" in after
    assert "pass" in after
    assert "numbers.sort(**{})" in after


def test_that_equal_lengths_are_not_checked_is_no_mistake_that_anybody_could_see(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("pairs = dict(zip('ab', 'cd', strict=True))\n")
    assert sample(tmp_path, [tmp_path / "own.py"], 40, seed=1) == []


def test_annotations_and_decorators_are_left_alone(planted) -> None:
    lines = Counter(one.before for one in planted)
    assert "@dataclass(frozen=True)" not in lines
    assert not any("->" in one.before and "skip: bool = False" in one.after for one in planted)


def test_a_mistake_leaves_neither_its_text_nor_what_was_compiled_of_it(tmp_path: Path) -> None:
    source, cache = tmp_path / "own.py", tmp_path / "__pycache__"
    source.write_text(SOURCE)
    cache.mkdir()
    changed_ns = source.stat().st_mtime_ns
    compiled = [cache / "own.cpython-311.pyc", cache / "owner.cpython-311.pyc"]
    for path in compiled:
        path.touch()
    with in_place(source, "pass"):
        assert source.read_text() == "pass"
        assert [path.exists() for path in compiled] == [False, True]
        compiled[0].touch()
    assert (source.read_text(), source.stat().st_mtime_ns) == (SOURCE, changed_ns)
    assert [path.exists() for path in compiled] == [False, True]


@pytest.mark.parametrize(
    ("text", "quick"),
    [
        ("def test_a(): ...", True),
        ("@pytest.mark.slow\ndef test_a(): ...", False),
        ("@pytest.mark.slow\ndef test_a(): ...\ndef test_b(): ...", True),
        ("pytestmark = pytest.mark.workloads\ndef test_a(): ...", False),
        ("pytestmark = [a, pytest.mark.slow]\ndef test_a(): ...", False),
        (
            "@pytest.mark.parametrize('a', [pytest.param(2, marks=pytest.mark.slow)])\ndef test_a(a): ...",
            True,
        ),
        ("def helper(): ...", False),
    ],
)
def test_files_without_a_quick_test_are_not_asked(text: str, quick: bool, tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(f"import pytest\n{text}\n")
    assert holds_quick(tmp_path / "test_own.py") is quick


@pytest.mark.slow
def test_a_mistake_is_killed_by_a_test_that_passes_without_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "tests").mkdir(parents=True)
    (project / "own.py").write_text("def two():\n    return 2\n")
    (project / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['slow', 'workloads']\n")
    (project / "tests/test_own.py").write_text(
        "import pytest, own\n"
        "def test_broken(): assert False\n"
        "def test_two(): assert own.two() < 3\n"
        "@pytest.mark.slow\ndef test_slow(): assert own.two() == 2\n"
    )
    copy = Copy(project, tmp_path / "judged", patience_s=60)
    try:

        def outcome(number: int | str, *tests: str, tier: str = QUICK) -> tuple[str, str]:
            text = f"def two():\n    return {number}\n"
            tried = copy.tried(Mutant("own.py", 2, "return 2", f"return {number}", "", text), tests, tier)
            return tried.outcome, tried.by

        assert outcome(3, "tests/test_own.py") == (KILLED, "tests/test_own.py::test_two")
        assert outcome(1, "tests/test_own.py") == (SURVIVED, "tests/test_own.py")
        assert outcome(1, "tests/test_own.py", tier=LONGER) == (KILLED, "tests/test_own.py::test_slow")
        assert outcome(3) == (UNTESTED, "")
        assert outcome("2\nimport nowhere", "tests/test_own.py")[0] == KILLED
        (copy.root / "tests/conftest.py").write_text("import own\n")  # before any test can begin
        assert outcome("2\nimport nowhere", "tests/test_own.py") == (KILLED, "what the tests import")
        assert copy.broken == {"tests/test_own.py::test_broken"}
    finally:
        copy.close()


@pytest.mark.slow
def test_the_mirrored_file_and_those_that_import_a_source_are_nearest() -> None:
    tests = list((ROOT / "tests").rglob("test_*.py"))
    nearest = Nearest(ROOT, tests)
    found = nearest.of(ROOT / "pipelines/store/records.py")
    assert found[0] == ROOT / "tests/pipelines/store/test_records.py"
    assert len(found) <= 5
    wide = Nearest(ROOT, tests, 60, 60).of(ROOT / "pipelines/store/records.py")
    assert len(wide) == 60 and wide[:3] == found[:3]
    without = [path for path in sources(ROOT) if not nearest.of(path)]
    assert len(without) < 20


def test_the_table_counts_what_is_no_equivalent() -> None:
    rows = {"slurm": Counter(killed=6, later=3, survived=1, equivalent=5)}
    assert "| slurm | 15 | 6 | 3 | 1 | 5 | 60% | 90% |" in command.table(rows)


def test_a_mistake_counts_for_the_first_tier_that_noticed_it() -> None:
    killed, survived, untested = (Tried(outcome, "", 0) for outcome in (KILLED, SURVIVED, UNTESTED))
    quick = {"a": killed, "b": survived, "c": survived, "d": untested}
    longer = {"b": killed, "d": survived}
    words = [command.verdict(key, [quick, {}, longer], {"c": "the same words"}) for key in "abcd"]
    assert words == ["killed", "later", "equivalent", "survived"]
    assert command.verdict("b", [quick], {}) == "survived"
