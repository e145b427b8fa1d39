"""Which refusals get a line: strangers must not fill the disk, nor push out the lines of what was
done with a flood of refusals.

Authenticated callers and strangers have separate limits, and within these each user or address has
its own.
"""

from __future__ import annotations

from typing import Final

from aerobee.runtime.token_bucket import TokenBucket

ONE_BURST: Final = 20
ONE_PER_S: Final = 1.0
"""For one user, or for one stranger's address."""
ALL_BURST: Final = 200
KNOWN_PER_S: Final = 5.0
STRANGERS_PER_S: Final = 1.0
"""For all strangers together."""
NAMED_MAX: Final = 1_024
LEFT_OUT_NAMED_MAX: Final = 10
OTHERS: Final = "_other"


class RefusalLimit:
    """Pure: the caller passes the monotonic time."""

    def __init__(self, now_s: float) -> None:
        self._all = {
            True: TokenBucket(per_s=KNOWN_PER_S, burst=ALL_BURST, now_s=now_s),
            False: TokenBucket(per_s=STRANGERS_PER_S, burst=ALL_BURST, now_s=now_s),
        }
        self._one: dict[tuple[bool, str], TokenBucket] = {}
        self._left_out: dict[str, int] = {}

    def passes(self, who: str, *, is_known: bool, now_s: float) -> bool:
        """Whether a refusal gets a line; otherwise it is only counted. `who` is the user's name, or
        a stranger's address."""
        key = (is_known, who)
        # Removed and reinserted: the one quiet for longest is the first to be forgotten.
        one = self._one.pop(key, None)
        if one is None:
            one = TokenBucket(per_s=ONE_PER_S, burst=ONE_BURST, now_s=now_s)
            if len(self._one) >= NAMED_MAX:
                del self._one[next(iter(self._one))]
        self._one[key] = one
        if one.take(now_s) == 0 and self._all[is_known].take(now_s) == 0:
            return True
        left_out = self._left_out
        name = who if who in left_out or len(left_out) < LEFT_OUT_NAMED_MAX else OTHERS
        left_out[name] = left_out.get(name, 0) + 1
        return False

    def take_left_out(self) -> dict[str, int]:
        """How many got no line since the last call, by caller; a few are named."""
        left_out, self._left_out = self._left_out, {}
        return left_out
