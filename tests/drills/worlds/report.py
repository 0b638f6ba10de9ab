"""The output of a drill, while it runs and at its end."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

Say = Callable[[str], None]


class Report(Struct):
    """The counts and violations of a drill."""

    name: str
    faults: int = 0
    points: int = 0
    runs: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        text = f"{self.name}: {self.faults} faults, {self.points} points, {len(self.violations)} violations"
        return "\n  ".join([text, *self.violations[:20]])
