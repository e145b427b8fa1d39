"""What the tier keeps on the disk: each segment that is not in it, or not for long enough.

Every replica asks the tier itself before it removes a segment, a slave too: its master may not have
come that far, and it may be the next one. Not to know is to keep.
"""

from __future__ import annotations

from concurrent.futures import Executor
from functools import partial

from aerobee.broker.retention.holds import Hold, Need, Upkeep
from aerobee.broker.tier.tier_thread import on_thread
from aerobee.broker.tier.uploader import Epochs
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError, TierDamaged
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.retention.retention_ledger import Candidate
from aerobee.store.engine.retention.retention_policy import Cause
from aerobee.store.tier.config import TierConfig
from aerobee.store.tier.objects import Objects
from aerobee.store.tier.uploads import check_agrees, find_manifest, local_segment, was_forgotten


class TierHold(Hold):
    """On the loop."""

    def __init__(
        self,
        objects: Objects,
        disk: Disk,
        roles: Epochs,
        clock: Clock,
        config: TierConfig,
        thread: Executor,
    ) -> None:
        self._objects = objects
        self._disk = disk
        self._roles = roles
        self._clock = clock
        self._config = config
        self._thread = thread

    async def need(self, candidate: Candidate, upkeep: Upkeep) -> Need | None:
        epochs = self._roles.history.entries
        look = partial(self._uploaded_ms, candidate.base, candidate.end, epochs)
        try:
            uploaded_ms = await on_thread(self._thread, look)
        except TierDamaged as error:
            return Need(candidate.base, str(error))
        except AerobeeError as error:
            return Need(
                candidate.base,
                f"it is unknown whether the log from offset {candidate.base} on is in the tier: "
                f"{error}",
            )
        if uploaded_ms is None:
            return Need(
                candidate.base,
                f"the log from offset {candidate.base} on is not in the tier {self._objects} yet: "
                "its master uploads full segments one after the other, and logs why it cannot",
            )
        is_recent = self._clock.now_ms() - uploaded_ms < self._config.local_delay_ms
        if is_recent and candidate.cause is not Cause.DISK:
            return Need(
                candidate.base,
                f"the log from offset {candidate.base} on has been in the tier for less than "
                f"tier.local_delay_ms ({self._config.local_delay_ms})",
            )
        return None

    def _uploaded_ms(self, base: int, end: int, epochs: tuple[tuple[int, int], ...]) -> int | None:
        """[the thread] When the segment came into the tier, 0 if it was there and an operator has
        removed it; None: it certainly has not been there."""
        manifest = find_manifest(self._objects, base)
        if manifest is None:
            return 0 if was_forgotten(self._objects, base) else None
        check_agrees(manifest, local_segment(self._disk, base, end, epochs))
        return manifest.uploaded_ms
