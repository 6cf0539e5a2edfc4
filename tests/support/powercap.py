"""A folder like the kernel's /sys/class/powercap, whose counters a test moves."""

from __future__ import annotations

from pathlib import Path

RANGE_UJ = 65_712_999_613
"""At which a server's counter begins anew."""


class FakePowercap:
    """Packages with their memory, cores and the whole board, in microjoules.

    Parameters
    ----------
    root : an empty folder
    packages : how many
    """

    def __init__(self, root: Path, packages: int = 1) -> None:
        self.root = root
        self.zones: dict[str, Path] = {}
        (root / "intel-rapl").mkdir()  # the control type stands beside its zones, and counts nothing
        for number in range(packages):
            self._zone(f"intel-rapl:{number}", f"package-{number}")
            self._zone(f"intel-rapl:{number}:0", "core")
            self._zone(f"intel-rapl:{number}:1", "dram", f"dram of package-{number}")
        self._zone(f"intel-rapl:{packages}", "psys")

    def _zone(self, folder: str, name: str, known_as: str = "") -> None:
        zone = self.root / folder
        zone.mkdir()
        (zone / "name").write_text(f"{name}\n")
        (zone / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
        (zone / "energy_uj").write_text("0\n")
        self.zones[known_as or name] = zone

    def count(self, **joules: float) -> None:
        """Let zones go on by so many joules, beginning anew at their range; ``_`` stands for ``-``."""
        for name, more in joules.items():
            file = self.zones[name.replace("_", "-")] / "energy_uj"
            file.write_text(f"{(int(file.read_text()) + round(more * 1e6)) % RANGE_UJ}\n")

    def count_all(self, joules: float) -> None:
        """Let every zone go on by so many joules."""
        self.count(**dict.fromkeys(self.zones, joules))
