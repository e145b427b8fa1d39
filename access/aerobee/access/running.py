"""For which user the running call is, and what that user may see.

Owns: one context variable, which a server sets around each call that its guard let in. A node
without access control sets none: then there are no users, and everyone may see everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from aerobee.access.resources import SEEING, Action, Kind, Need, topic_need
from aerobee.access.rights import Rights

FORWARDED_USER_KEY: Final = "x-mq-forwarded-user"
"""The user whose call a node forwards. Only nodes are believed."""


CURRENT_RIGHTS: ContextVar[Rights | None] = ContextVar("aerobee_rights", default=None)


def user_of_call(metadata: Mapping[str, Any]) -> str:
    """The user for whom the running call is made, perhaps by a node; empty: none is known."""
    rights = CURRENT_RIGHTS.get()
    if rights is None:
        return ""
    return rights.user_name or str(metadata.get(FORWARDED_USER_KEY, ""))


def require_seen(needs: Iterable[Need]) -> None:
    """For what only the work shows, such as the topic of a record: none of these is denied to the
    running call. Raises AccessDenied, Unauthenticated."""
    rights = CURRENT_RIGHTS.get()
    if rights is not None:
        for need in needs:
            rights.require_seen(need)


def require(needs: Iterable[Need]) -> None:
    """For what only the work shows and no earlier check has covered: the running call has all of
    these rights. Raises AccessDenied, Unauthenticated."""
    rights = CURRENT_RIGHTS.get()
    if rights is not None:
        for need in needs:
            rights.require(need)


def require_still() -> None:
    """For a call that has waited: it may still do all that it was allowed at first. Raises
    AccessDenied, Unauthenticated."""
    rights = CURRENT_RIGHTS.get()
    if rights is not None:
        rights.check_again()


def sends_now() -> Callable[[str], bool]:
    """Whether the user of the running call may send to a topic, judged anew each time: for streams
    that get a topic's messages long after they began."""
    rights = CURRENT_RIGHTS.get()
    if rights is None:
        return lambda topic: True
    return lambda topic: rights.may(topic_need(topic, Action.PUB))


def sight(need_of: Callable[[str], Need]) -> Callable[[str], bool]:
    """Whether the running call may see a name, for answers about many, which leave out what a
    policy denies. Each name is judged once."""
    rights = CURRENT_RIGHTS.get()
    if rights is None or rights.hides_nothing:
        return lambda name: True
    found: dict[str, bool] = {}

    def sees(name: str) -> bool:
        is_seen = found.get(name)
        if is_seen is None:
            is_seen = found[name] = not rights.hides(need_of(name))
        return is_seen

    return sees


def sees_everything() -> bool:
    """Whether nothing need be left out of an answer to the running call."""
    rights = CURRENT_RIGHTS.get()
    return rights is None or rights.hides_nothing


def groups_seen() -> Callable[[str], bool]:
    """Whether the running call may see that a group exists."""
    return sight(partial(Need, Kind.GROUP, actions=Action.LIST))


def groups_read() -> Callable[[str], bool]:
    """Whether the running call may see what a group has read."""
    return sight(partial(Need, Kind.GROUP, actions=SEEING))


def topics_listed() -> Callable[[str], bool]:
    """Whether the running call may see that a topic exists."""
    return sight(partial(topic_need, actions=Action.LIST))


def topics_seen() -> Callable[[str], bool]:
    """Whether the running call may see what a topic has."""
    return sight(partial(topic_need, actions=SEEING))
