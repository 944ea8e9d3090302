"""What the person at the keyboard may choose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds`: how long idling is watched; everything else is scaled by it."""

    seconds: float = 60.0
    real: bool = False  # this machine's own GPUs and bus

    @property
    def window_seconds(self) -> float:
        """For what happens many times a second: 10 s by default."""
        return self.seconds / 6

    def rounds(self, by_default: int) -> int:
        """For what is repeated; at least two."""
        return max(2, round(by_default * self.seconds / 60))
