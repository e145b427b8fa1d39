"""The power of a simulated machine, and its steps: everything by which a disk changes.

Steps are counted, announced to `on_step` (where a test may let another thread run), and may be the
last: from step `power_ends_at` on every call raises PowerCut.

Faults are plain attributes, to be set and cleared by a test: `fault` gives an error for a step, and
`is_ignored` names syncs that return without doing anything, as a broken program or disk would.
"""

from __future__ import annotations

from collections.abc import Callable

StepTest = Callable[[str, str], bool]


class PowerCut(BaseException):
    """There is no power: whatever runs ends here. Not an Exception, so that no handler catches
    it."""


class PowerSupply:
    def __init__(self) -> None:
        self.sequence = 0
        self.steps = 0
        self.power_ends_at: int | None = None
        self.is_dead = False
        self.on_step: Callable[[], None] | None = None
        self.fault: Callable[[str, str], OSError | None] | None = None
        self.is_ignored: StepTest | None = None
        self.trace: Callable[[str], None] | None = None

    def step(self, operation: str, path: str, detail: str = "") -> int:
        """Before anything changes; returns the sequence number of the change. Raises PowerCut,
        OSError."""
        if self.on_step is not None:
            self.on_step()
        self.check_power()
        if self.power_ends_at is not None and self.steps >= self.power_ends_at:
            self.end_power()
            self.check_power()
        self.steps += 1
        self.sequence += 1
        if self.trace is not None:
            self.trace(f"{self.sequence:4} {operation} {path} {detail}".rstrip())
        return self.sequence

    def fault_of(self, operation: str, path: str) -> OSError | None:
        return None if self.fault is None else self.fault(operation, path)

    def ignores(self, operation: str, path: str) -> bool:
        return self.is_ignored is not None and self.is_ignored(operation, path)

    def check_power(self) -> None:
        if self.is_dead:
            raise PowerCut

    def end_power(self) -> None:
        self.is_dead = True
        if self.trace is not None:
            self.trace(f"     ---- the end, after step {self.steps}")
