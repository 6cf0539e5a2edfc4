"""What `make mutants` plants and which tests it asks: the tool that judges tests is judged too."""

from __future__ import annotations

import faulthandler
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray", reason="mutants are drawn by cosmic-ray, which `make lint` installs")

from mutants.judged import KILLED, QUICK, SURVIVED, TIERS, UNTESTED, Copy, nearest
from mutants.planted import Mutant, sample

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


def test_the_file_of_a_sources_name_comes_first_then_those_that_name_it_then_users_of_its_users(
    tmp_path: Path,
) -> None:
    for name, text in {
        "pipelines/plan/arms.py": "def legal(): ...",
        "pipelines/plan/packs.py": "from perfsweep.pipelines.plan import arms",
        "tests/plan/test_arms.py": "import perfsweep.pipelines.plan.arms",
        "tests/test_some.py": "from perfsweep.pipelines.plan.arms import legal",
        "tests/test_others.py": "from perfsweep.pipelines.plan import arms",
        "tests/test_packs.py": "'perfsweep.pipelines.plan.packs'",
        "tests/test_long.py": "import perfsweep.pipelines.plan.arms\npytestmark = [a, pytest.mark.slow]\n",
        "tests/test_foreign.py": "import arms",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = nearest(tmp_path, tmp_path / "pipelines/plan/arms.py", "wide")
    assert found == [
        f"tests/{name}.py" for name in ("plan/test_arms", "test_some", "test_others", "test_packs")
    ]
    assert "tests/test_long.py" in nearest(tmp_path, tmp_path / "pipelines/plan/arms.py", "longer")


def test_a_part_that_only_its_package_names_is_reached_through_that_and_through_what_tests_share(
    tmp_path: Path,
) -> None:
    for name, text in {
        "pipelines/parts/one.py": 'LEVELS = "quick", "thorough"',
        "pipelines/parts/__init__.py": "from perfsweep.pipelines.parts import one",
        "tests/support/arms.py": "from perfsweep.pipelines.parts import one",
        "tests/test_arms.py": "from arms import one\n'quick'",
        "tests/test_all.py": "from perfsweep.pipelines.parts import LEVELS",
        "tests/test_words.py": "arms = 'quick', 'thorough'",
        "tests/pipelines/parts/test_one.py": "def test_all(): ...",
        "tests/test_gpu.py": "import perfsweep.pipelines.parts\npytestmark = [\n pytest.mark.gpu\n]",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = nearest(tmp_path, tmp_path / "pipelines/parts/one.py", "quick")
    assert found[0] == "tests/pipelines/parts/test_one.py", "the file of its name, whatever it names"
    assert sorted(found[1:]) == ["tests/test_all.py", "tests/test_arms.py"]


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
    faulthandler.cancel_dump_traceback_later()  # a fork could not take back what pytest has armed here
    copy = Copy(project, tmp_path / "judged", patience_s=60)

    def outcome(number: int | str, *tests: str, mark: str = QUICK) -> tuple[str, str]:
        text = f"def two():\n    return {number}\n"
        return copy.tried(Mutant("own.py", 2, "return 2", f"return {number}", "", text), tests, mark)

    assert outcome(3, "tests/test_own.py") == (KILLED, "tests/test_own.py::test_two")
    assert outcome(1, "tests/test_own.py") == (SURVIVED, "")
    assert outcome(1, "tests/test_own.py", mark=TIERS["longer"][0]) == (
        KILLED,
        "tests/test_own.py::test_slow",
    )
    assert outcome(3) == (UNTESTED, "")
    assert outcome("2\nimport nowhere", "tests/test_own.py")[0] == KILLED
    copy.patience_s = 2  # seconds that a test which hangs is given
    assert outcome("sum(iter(int, 1))", "tests/test_own.py") == (KILLED, "tests/test_own.py::test_two")
    copy.patience_s = 60
    (copy.root / "tests/conftest.py").write_text("import own\n")  # before any test can begin
    assert outcome("2\nimport nowhere", "tests/test_own.py") == (KILLED, "what the tests import")
    assert copy.broken == {"tests/test_own.py::test_broken"}
