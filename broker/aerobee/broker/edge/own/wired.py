"""Services of our own protocol that need many parts: a piece of the composition root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.access.needs import Resources
from aerobee.broker.edge.own.admin_service import AdminService
from aerobee.broker.edge.own.needs import BrokerNeeds
from aerobee.broker.edge.own.offset_service import OffsetService
from aerobee.broker.observe.remaining import remaining_reading

if TYPE_CHECKING:
    from aerobee.broker.wiring import Wiring


def admin_service(parts: Wiring) -> AdminService:
    """The service for operators."""
    return AdminService(
        parts.identity,
        parts.state.now,
        parts.lookup,
        parts.cleaning,
        parts.handover,
        parts.closing,
        remaining_reading(parts).read,
        BrokerNeeds(Resources(parts.config.cluster)),
    )


def offset_service(parts: Wiring) -> OffsetService:
    """Groups' progress, what they send back, and their dead letters."""
    return OffsetService(
        parts.offsets,
        parts.removal,
        parts.guard,
        parts.queues,
        parts.retries.send_backs,
        parts.retries.dead_letters,
        parts.reads.loop_turns,
        after_reset=parts.popping.until_written,
    )
