"""When to flush: pure decisions over bytes and seconds."""

from __future__ import annotations

from dataclasses import dataclass

from aerobee.store.engine.config import FlushMode, StoreConfig


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """SYNC: whenever anything is unflushed. ASYNC: by size, and by time since the last flush."""

    mode: FlushMode
    interval_s: float
    unflushed_bytes: int

    @classmethod
    def of(cls, config: StoreConfig) -> FlushPolicy:
        return cls(
            config.flush_mode, config.flush_interval_ms / 1_000, config.flush_unflushed_bytes
        )

    def due_after_append(self, unflushed_bytes: int) -> bool:
        """Whether what was just appended must be flushed at once."""
        if self.mode is FlushMode.SYNC:
            return unflushed_bytes > 0
        return unflushed_bytes >= self.unflushed_bytes

    def due_by_time(
        self, unflushed_bytes: int, since_flush_s: float, *, checkpoint_due: bool
    ) -> bool:
        """Whether time alone calls for one."""
        if checkpoint_due:
            return True
        if unflushed_bytes == 0:
            return False
        return self.mode is FlushMode.SYNC or since_flush_s >= self.interval_s

    @property
    def tick_s(self) -> float:
        """How often to ask `due_by_time`."""
        return min(self.interval_s, 0.5)
