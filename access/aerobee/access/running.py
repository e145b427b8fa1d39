"""For which user the running call is, and what that user may see.

Owns: one context variable, which a server sets around each call that its gate let in. A node
without access control sets none: then there are no users, and everyone may see everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, Protocol

from aerobee.access.resources import Action, Need, topic_need

FORWARDED_USER_KEY: Final = "x-mq-forwarded-user"
"""The user whose call a node forwards. Only nodes are believed."""


class Judge(Protocol):
    """What one call's caller may do, by the users and policies as they are now."""

    @property
    def user_name(self) -> str:
        """Empty: the caller is a node."""
        ...

    def may(self, need: Need) -> bool: ...

    def require(self, need: Need) -> None:
        """Raises AccessDenied, Unauthenticated; the refusal is recorded."""
        ...


CURRENT_JUDGE: ContextVar[Judge | None] = ContextVar("aerobee_judge", default=None)


def user_of_call(metadata: Mapping[str, Any]) -> str:
    """The user for whom the running call is made, perhaps by a node; empty: none is known."""
    judge = CURRENT_JUDGE.get()
    if judge is None:
        return ""
    return judge.user_name or str(metadata.get(FORWARDED_USER_KEY, ""))


def require(need: Need) -> None:
    """For what only the work shows: the running call needs this, too. Raises AccessDenied,
    Unauthenticated."""
    judge = CURRENT_JUDGE.get()
    if judge is not None:
        judge.require(need)


def sends_now() -> Callable[[str], bool]:
    """Whether the user of the running call may send to a topic, judged anew each time: for streams
    that get a topic's messages long after they began."""
    judge = CURRENT_JUDGE.get()
    if judge is None:
        return lambda topic: True
    return lambda topic: judge.may(topic_need(topic, Action.PUB))


def sight(need_of: Callable[[str], Need]) -> Callable[[str], bool]:
    """Whether the running call may see a name, for answers about many. Each name is judged once."""
    judge = CURRENT_JUDGE.get()
    if judge is None:
        return lambda name: True
    found: dict[str, bool] = {}

    def sees(name: str) -> bool:
        is_seen = found.get(name)
        if is_seen is None:
            is_seen = found[name] = judge.may(need_of(name))
        return is_seen

    return sees
