"""The wall clock as far as ages of files may be judged by it.

A clock that is set forward makes every file look old at once, and what was deleted for it stays
deleted when somebody sets the clock right. So a step forward counts only once it has stood for a
day; a step back counts at once, because it only makes files look younger. A process that starts
believes no more than a day beyond the latest time that its folder knows of, until that day has
passed: also a clock that was wrong at the start removes nothing early. Nothing waits for the
wall clock alone: a file's age is also the time for which this process has known it, see
`SegmentAges`.

The monotonic clock that comes in continues while the machine sleeps: waking up is no step.
"""

from __future__ import annotations

from collections.abc import Iterable

STEP_BELIEVED_AFTER_S = 86_400.0
# What NTP may slew, or a slow caller may miss, between two looks.
_SLEW_MS = 1_000


class SteadyTime:
    """Unix milliseconds that take no sudden step forward."""

    __slots__ = ("_believed_ms", "_stepped_ms", "_stepped_s")

    def __init__(self, now_ms: int, monotonic_s: float, last_seen_ms: int = 0) -> None:
        """`last_seen_ms`: a time that has certainly passed; 0 if none is known."""
        # The wall clock less the monotonic one.
        offset_ms = now_ms - monotonic_s * 1_000
        self._believed_ms = offset_ms
        self._stepped_ms: float | None = None
        self._stepped_s = 0.0
        believed_max_ms = last_seen_ms + STEP_BELIEVED_AFTER_S * 1_000
        if last_seen_ms and now_ms > believed_max_ms:
            self._believed_ms = believed_max_ms - monotonic_s * 1_000
            self._stepped_ms, self._stepped_s = offset_ms, monotonic_s

    def now_ms(self, now_ms: int, monotonic_s: float) -> int:
        """The time to judge ages by; to be asked every few seconds."""
        offset_ms = now_ms - monotonic_s * 1_000
        if offset_ms <= self._believed_ms + _SLEW_MS:
            self._believe(offset_ms)
        elif self._stepped_ms is None or abs(offset_ms - self._stepped_ms) > _SLEW_MS:
            self._stepped_ms, self._stepped_s = offset_ms, monotonic_s
        elif monotonic_s - self._stepped_s >= STEP_BELIEVED_AFTER_S:
            self._believe(offset_ms)
        else:
            self._stepped_ms = offset_ms
        return round(monotonic_s * 1_000 + self._believed_ms)

    def _believe(self, offset_ms: float) -> None:
        self._believed_ms = offset_ms
        self._stepped_ms = None


class SegmentAges:
    """How old each segment is: by the time of its last write, and at least as old as the time for
    which it has been known. So a last write in the future does not keep a segment permanently."""

    __slots__ = ("_known_since_s",)

    def __init__(self) -> None:
        self._known_since_s: dict[int, float] = {}

    def know(self, bases: Iterable[int], monotonic_s: float) -> None:
        """These are the sealed segments now, by the offset at which they begin."""
        known = self._known_since_s
        self._known_since_s = {base: known.get(base, monotonic_s) for base in bases}

    def age_ms(self, base: int, modified_ms: int, now_ms: int, monotonic_s: float) -> int:
        """Of a segment that is known."""
        known_for_ms = round((monotonic_s - self._known_since_s[base]) * 1_000)
        return max(now_ms - modified_ms, known_for_ms)
