"""Changes to what etcd holds, made only if nothing they rest on has changed in the meantime.

Owns: the loop. Read, decide, write in one transaction that expects what was read; if that fails,
somebody else was faster, so read and decide again. Two nameservers that change one thing at the
same time never lose a change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from aerobee.nameserver.key_value_store import KeyValueStore
from aerobee.nameserver.key_values import Delete, KeyValue, LeaseNotFound, Put
from aerobee.runtime.errors import RegistryUnavailable

ATTEMPTS_MAX: Final = 8

Seen = TypeVar("Seen")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Write(Generic[T_co]):
    """The decision to make all `changes` if each expected key is still at its revision (0: does
    not exist)."""

    value: T_co
    """What the caller of `changed` gets."""
    expected: Mapping[str, int]
    changes: Sequence[Put | Delete]


@dataclass(frozen=True, slots=True)
class Keep(Generic[T_co]):
    """The decision to change nothing."""

    value: T_co


async def changed(
    etcd: KeyValueStore,
    read: Callable[[], Awaitable[Seen]],
    decide: Callable[[Seen], Write[T_co] | Keep[T_co]],
    *,
    what: str,
    on_lost: Callable[[Seen], Awaitable[None]] | None = None,
) -> tuple[T_co, int]:
    """The value of the decision, and the revision at which it was written; 0: it was to change
    nothing.

    `decide` is pure, and refuses by raising. `what` is named in the error. `on_lost` undoes what
    `read` prepared for a write that was not made.

    Raises:
        What `read` and `decide` raise.
        RegistryUnavailable: others changed it ATTEMPTS_MAX times in a row; or it is unknown whether
            it was written.
    """
    for _ in range(ATTEMPTS_MAX):
        seen = await read()
        decision = decide(seen)
        if isinstance(decision, Keep):
            return decision.value, 0
        try:
            done = await etcd.transaction(decision.expected, decision.changes)
        except LeaseNotFound:  # so has the key that was to keep it
            pass
        else:
            if done.succeeded:
                return decision.value, done.revision
        if on_lost is not None:
            await on_lost(seen)
    raise RegistryUnavailable(f"{what} is being changed by others; try again")


def revision_of(entry: KeyValue | None) -> int:
    """What a transaction expects of a key that was read; None: it does not exist."""
    return 0 if entry is None else entry.revision
