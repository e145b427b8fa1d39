"""Dead letters that were neither resent nor dropped, by group."""

from __future__ import annotations

from typing import Protocol

from aerobee.broker.opened import OpenedFolder
from aerobee.broker.retries.dead_letters import SETTLED_BY
from aerobee.domain.names import DEAD_LETTER_PREFIX
from aerobee.runtime.metrics.slices import Slices
from aerobee.store.engine.message_store import MessageStore


class Parts(Protocol):
    """What the reading needs of the broker."""

    store: MessageStore
    folder: OpenedFolder


async def unsettled_letters(parts: Parts, slices: Slices) -> dict[str, int]:
    """How many each group has, without groups that have none."""
    found: dict[str, int] = {}
    folder = parts.folder
    for topic in [each for each in folder.topics if each.startswith(DEAD_LETTER_PREFIX)]:
        bounds = parts.store.queues.bounds(topic, 0)
        first = max(bounds.min_offset, folder.offsets.query(SETTLED_BY, topic, 0) or 0)
        beyond = folder.offsets.finished.of(SETTLED_BY, topic, 0)
        settled = sum(max(0, each.end - max(each.begin, first)) for each in beyond or ())
        if count := max(0, bounds.max_offset - first) - settled:
            found[topic.removeprefix(DEAD_LETTER_PREFIX)] = count
        await slices.breathe()
    return found
