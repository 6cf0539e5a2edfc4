"""The committed ledger is current, and no result page carries a claim that is not in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfsweep.pipelines.analysis.claim_ledger import published_rulings
from perfsweep.pipelines.commands import claims
from perfsweep.workloads import registry

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(page for page in (DOCS / "results").glob("*.md") if "\n## Claims\n" in page.read_text())


def test_the_page_is_what_the_ledgers_and_the_results_say() -> None:
    committed = (DOCS / "claims.md").read_text()
    assert committed == claims.page(None, DOCS / "results"), "perfsweep claims --markdown > docs/claims.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_claim_of_a_result_page_is_in_the_ledger(page: Path, tmp_path: Path) -> None:
    (tmp_path / page.name).write_text(page.read_text())
    shown = published_rulings(tmp_path)
    claims = registry.find(page.stem.partition("-")[0]).claims
    kept = {(claim.source, claim.section, claim.text) for claim in claims}
    assert shown.height
    assert set(shown.select("source", "section", "claim").iter_rows()) <= kept


def test_a_ruling_is_read_from_a_page_with_its_reason_design_and_machine(tmp_path: Path) -> None:
    (tmp_path / "w-sweep.md").write_text(
        "# w-sweep\n\n## Claims\n\nA sentence.\n\n| about | claim | source | ruling |\n|---|---|---|---|\n"
        "| amp=bf16 (one at a time) | twice as fast | guide, aside, 2 | confirmed: at least (speed 3x) |\n"
        "\n## Notes\n\n- machine: quiet\n"
    )
    (row,) = published_rulings(tmp_path).iter_rows(named=True)
    assert (row["workload"], row["source"], row["section"]) == ("w", "guide, aside", "2")
    assert (row["subject"], row["design"]) == ("amp=bf16", "one_at_a_time")
    assert (row["ruling"], row["reason"]) == ("confirmed", "at least (speed 3x)")
    assert (row["sweep"], row["machine"]) == ("[w-sweep](results/w-sweep.md)", "quiet")


def test_a_page_of_one_design_names_it_in_its_heading_alone(tmp_path: Path) -> None:
    (tmp_path / "w-sweep.md").write_text(
        "# w-sweep\n\n## Effects: leave one out\n\n## Claims\n\n"
        "| amp=bf16 | twice as fast | guide, 2 | refuted |\n"
    )
    assert published_rulings(tmp_path)["design"].to_list() == ["leave_one_out"]
