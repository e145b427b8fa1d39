"""What a broker reports about itself, put together from its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.observe.audit.snapshots import Snapshots
from aerobee.broker.observe.audit.unread import unread_survey
from aerobee.broker.observe.readiness import Readiness

if TYPE_CHECKING:
    from aerobee.broker.wiring import Wiring


def make_snapshots(parts: Wiring) -> Snapshots:
    return Snapshots(
        parts.folder,
        parts.coordinator,
        parts.offsets,
        parts.roles,
        parts.minutes,
        parts.delays.counts.by_topic,
        lambda: unread_survey(parts),
        parts.clock,
    )


def make_readiness(parts: Wiring) -> Readiness:
    return Readiness(
        parts.roles,
        parts.store,
        parts.report,
        parts.follower,
        parts.registration,
        parts.watch,
    )
