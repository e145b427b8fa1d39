"""The wall clock, as far as it can be trusted for ages of files.

A clock that is set forward makes every file look old at once, and what is deleted because of it
stays deleted when the clock is corrected. So a step forward counts only once it has lasted for a
day; a step back counts at once, because it only makes files look younger. A process that starts
accepts at most a day beyond the latest time found in its folder, until that day has passed: so even
a clock that was wrong at the start removes nothing early. Nothing depends on the wall clock alone:
a file's age is at least the time for which this process has known it, see `SegmentAges`.

The monotonic clock passed in continues while the machine sleeps: waking up is not a step.
"""

from __future__ import annotations

from collections.abc import Iterable

STEP_BELIEVED_AFTER_S = 86_400.0
# What NTP may slew, or a slow caller may miss, between two calls.
_SLEW_MS = 1_000


class SteadyTime:
    """Unix milliseconds without sudden steps forward."""

    __slots__ = ("_believed_ms", "_stepped_ms", "_stepped_s")

    def __init__(self, now_ms: int, monotonic_s: float, last_seen_ms: int = 0) -> None:
        """`last_seen_ms`: a time that has certainly passed; 0 if none is known."""
        # The wall clock minus the monotonic one.
        offset_ms = now_ms - monotonic_s * 1_000
        self._believed_ms = offset_ms
        self._stepped_ms: float | None = None
        self._stepped_s = 0.0
        believed_max_ms = last_seen_ms + STEP_BELIEVED_AFTER_S * 1_000
        if last_seen_ms and now_ms > believed_max_ms:
            self._believed_ms = believed_max_ms - monotonic_s * 1_000
            self._stepped_ms, self._stepped_s = offset_ms, monotonic_s

    def now_ms(self, now_ms: int, monotonic_s: float) -> int:
        """The time for judging ages; call it every few seconds."""
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
    """How old each segment is: by the time of its last write, but at least the time for which it
    has been known. So a last write in the future does not keep a segment forever."""

    __slots__ = ("_known_since_s",)

    def __init__(self) -> None:
        self._known_since_s: dict[int, float] = {}

    def know(self, bases: Iterable[int], monotonic_s: float) -> None:
        """These are the sealed segments now, by their start offsets."""
        known = self._known_since_s
        self._known_since_s = {base: known.get(base, monotonic_s) for base in bases}

    def age_ms(self, base: int, modified_ms: int, now_ms: int, monotonic_s: float) -> int:
        """The age of a known segment."""
        known_for_ms = round((monotonic_s - self._known_since_s[base]) * 1_000)
        return max(now_ms - modified_ms, known_for_ms)
