"""Topics, as `AdminClient.topics` shows and changes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from aerobee.client_core.topics import Topics
from aerobee.cluster_view.route import PERM_READ, PERM_WRITE
from aerobee.runtime.errors import InvalidArgument, TopicNotFound
from aerobee.v1 import common_pb2

Permission = Literal["rw", "r", "w"]
"""What clients may do with a topic: read, write."""

_MASKS: Final = {"rw": PERM_READ | PERM_WRITE, "r": PERM_READ, "w": PERM_WRITE}


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic."""

    name: str
    queues_by_broker: Mapping[str, int]
    """How many queues each broker group has of it."""
    permission: Permission
    ordered: bool
    """Meant for ordered messages."""
    attributes: Mapping[str, str]

    @property
    def queues(self) -> int:
        """In all broker groups together."""
        return sum(self.queues_by_broker.values())


class TopicAdmin:
    """Topics: create, list, change, delete. Every call may raise RegistryUnavailable, Unreachable,
    DeadlineExceeded and AccessDenied."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    async def create(
        self,
        name: str,
        *,
        queues: int | None = None,
        permission: Permission = "rw",
        ordered: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> Topic:
        """Create a topic; `queues` is in total, by default as many as the cluster's policy says.

        Raises:
            TopicExists, IllegalName, LimitReached, NoBrokerAvailable.
        """
        return _topic(
            await self._topics.create(
                name,
                queues=queues or 0,
                perm=_mask(permission),
                order=ordered,
                attributes=attributes,
            )
        )

    async def update(
        self,
        name: str,
        *,
        queues: int | None = None,
        permission: Permission | None = None,
        ordered: bool | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> Topic:
        """Change what is given; an attribute with an empty value is removed.

        Raises:
            TopicNotFound, IllegalName; InvalidArgument: fewer queues than before.
        """
        return _topic(
            await self._topics.update(
                name,
                queues=queues,
                perm=None if permission is None else _mask(permission),
                order=ordered,
                attributes=attributes,
            )
        )

    async def delete(self, name: str) -> None:
        """Delete a topic with its messages and all groups' offsets on it. Raises TopicNotFound."""
        await self._topics.delete(name)

    async def get(self, name: str) -> Topic:
        """One topic. Raises TopicNotFound."""
        found = next((each for each in await self.list(with_own=True) if each.name == name), None)
        if found is None:
            raise TopicNotFound(f"there is no topic {name!r}; create it, or check the spelling")
        return found

    async def list(self, *, with_own: bool = False) -> list[Topic]:
        """All topics, by name; with `with_own` also those that brokers made themselves: of groups'
        failed messages and dead letters, and of the system."""
        return [_topic(each) for each in await self._topics.list(with_own=with_own)]


def _mask(permission: str) -> int:
    if permission not in _MASKS:
        raise InvalidArgument(f"permission must be one of {', '.join(_MASKS)}, not {permission!r}")
    return _MASKS[permission]


def _topic(config: common_pb2.TopicConfig) -> Topic:
    letters = ("r" if config.perm & PERM_READ else "") + ("w" if config.perm & PERM_WRITE else "")
    permission: Permission = "r" if letters == "r" else "w" if letters == "w" else "rw"
    return Topic(
        name=config.name,
        queues_by_broker=dict(sorted(config.queues_by_broker.items())),
        permission=permission,
        ordered=config.order,
        attributes=dict(config.attributes),
    )
