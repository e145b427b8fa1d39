"""For which user the running call is, and what that user may see.

Owns: one context variable, which a server sets around each call that its gate let in. A node
without access control sets none: then there are no users, and everyone may see everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, Protocol

from aerobee.access.resources import SEEING, Action, Kind, Need, topic_need

FORWARDED_USER_KEY: Final = "x-mq-forwarded-user"
"""The user whose call a node forwards. Only nodes are believed."""


class Judge(Protocol):
    """What one call's caller may do, by the users and policies as they are now."""

    @property
    def user_name(self) -> str:
        """Empty: the caller is a node."""
        ...

    def may(self, need: Need) -> bool: ...

    @property
    def hides_nothing(self) -> bool:
        """No policy of the caller denies anything."""
        ...

    def hides(self, need: Need) -> bool:
        """Whether a policy denies it."""
        ...

    def require_seen(self, need: Need) -> None:
        """Raises AccessDenied, Unauthenticated if a policy denies it; the refusal is recorded."""
        ...


CURRENT_JUDGE: ContextVar[Judge | None] = ContextVar("aerobee_judge", default=None)


def user_of_call(metadata: Mapping[str, Any]) -> str:
    """The user for whom the running call is made, perhaps by a node; empty: none is known."""
    judge = CURRENT_JUDGE.get()
    if judge is None:
        return ""
    return judge.user_name or str(metadata.get(FORWARDED_USER_KEY, ""))


def require_seen(needs: Iterable[Need]) -> None:
    """For what only the work shows, such as the topic of a record: none of these is denied to the
    running call. Raises AccessDenied, Unauthenticated."""
    judge = CURRENT_JUDGE.get()
    if judge is not None:
        for need in needs:
            judge.require_seen(need)


def sends_now() -> Callable[[str], bool]:
    """Whether the user of the running call may send to a topic, judged anew each time: for streams
    that get a topic's messages long after they began."""
    judge = CURRENT_JUDGE.get()
    if judge is None:
        return lambda topic: True
    return lambda topic: judge.may(topic_need(topic, Action.PUB))


def sight(need_of: Callable[[str], Need]) -> Callable[[str], bool]:
    """Whether the running call may see a name, for answers about many, which leave out what a
    policy denies. Each name is judged once."""
    judge = CURRENT_JUDGE.get()
    if judge is None or judge.hides_nothing:
        return lambda name: True
    found: dict[str, bool] = {}

    def sees(name: str) -> bool:
        is_seen = found.get(name)
        if is_seen is None:
            is_seen = found[name] = not judge.hides(need_of(name))
        return is_seen

    return sees


def groups_seen() -> Callable[[str], bool]:
    """Whether the running call may see that a group exists."""
    return sight(partial(Need, Kind.GROUP, actions=Action.LIST))


def topics_listed() -> Callable[[str], bool]:
    """Whether the running call may see that a topic exists."""
    return sight(partial(topic_need, actions=Action.LIST))


def topics_seen() -> Callable[[str], bool]:
    """Whether the running call may see what a topic has."""
    return sight(partial(topic_need, actions=SEEING))
