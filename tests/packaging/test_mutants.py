"""What `make mutants` plants and which tests it asks: the tool that judges tests is judged too."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray", reason="mutants are drawn by cosmic-ray, which `make lint` installs")

from mutants import __main__ as command
from mutants.nearest import Nearest, sources
from mutants.positions import sample

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


def test_what_people_get_wrong_is_among_them(planted) -> None:
    after = {one.after for one in planted}
    assert "if True:" in after
    assert "pass" in after
    assert "numbers.sort(**{})" in after


def test_annotations_and_decorators_are_left_alone(planted) -> None:
    lines = Counter(one.before for one in planted)
    assert "@dataclass(frozen=True)" not in lines
    assert not any("->" in one.before and "skip: bool = False" in one.after for one in planted)


@pytest.mark.slow
def test_the_mirrored_file_and_those_that_import_a_source_are_nearest() -> None:
    tests = list((ROOT / "tests").rglob("test_*.py"))
    nearest = Nearest(ROOT, tests)
    found = nearest.of(ROOT / "pipelines/store/records.py")
    assert found[0] == ROOT / "tests/pipelines/store/test_records.py"
    assert len(found) <= 5
    without = [path for path in sources(ROOT) if not nearest.of(path)]
    assert len(without) < 20


def test_the_table_counts_what_is_no_equivalent() -> None:
    rows = {"slurm": Counter(killed=8, survived=2, equivalent=5)}
    assert "| slurm | 15 | 8 | 2 | 5 | 80% |" in command.table(rows)
