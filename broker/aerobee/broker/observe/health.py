"""A broker's health: its answers to startup, liveness and readiness probes.

    STARTING -> OPENING -> SERVING -> ENDING
                   ^          |
                   +- CLOSING +   the folder is opened again, to follow another master

Owns: the phase, and when the work on the folder last made progress. That work runs on a thread, and
can take hours after a crash of a large broker; it reports progress through `advanced`, which is the
only method for other threads. So a probe can distinguish a long recovery from a hung one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from aerobee.runtime.clock import Clock
from aerobee.runtime.health import Question
from aerobee.store.engine.statistics import RecoveryProgress

UNMEASURED = RecoveryProgress(0, 0)
STALLED_S = 60.0
"""Work on the folder without progress for this long counts as hung: its disk does not respond."""


class _Phase(Enum):
    STARTING = auto()
    OPENING = auto()
    SERVING = auto()
    CLOSING = auto()
    ENDING = auto()


@dataclass(frozen=True, slots=True)
class _Advance:
    """The newest sign of life from the folder's thread."""

    moment_s: float
    progress: RecoveryProgress


class BrokerHealth:
    """On the loop, except `advanced`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._phase = _Phase.STARTING
        self._has_begun = False
        """In this process, the folder is ours and its recovery was seen to make progress."""
        self._failure = ""
        self._why_not_ready: Callable[[], str] = lambda: ""
        self._why_hung: Callable[[], str] = lambda: ""
        self._advance: _Advance | None = None
        self._opening_since_s = clock.monotonic_s()

    def __repr__(self) -> str:
        return f"BrokerHealth({self._phase.name}, {self._failure!r})"

    # ------------------------------------------------------------------------------ told

    def advanced(self, progress: RecoveryProgress = UNMEASURED) -> None:
        """[any thread] The work on the folder has made progress. A single reference is replaced,
        which the loop reads atomically."""
        self._advance = _Advance(self._clock.monotonic_s(), progress)

    def opens(self) -> None:
        """Work on the folder begins; nothing is served meanwhile."""
        self._phase = _Phase.OPENING
        self._advance = None
        self._opening_since_s = self._clock.monotonic_s()

    def serves(
        self, why_not_ready: Callable[[], str], why_hung: Callable[[], str] = lambda: ""
    ) -> None:
        """The folder is open and the port listens; `why_not_ready` checks the rest, `why_hung`
        whether the disk responds."""
        self._phase = _Phase.SERVING
        self._has_begun = True
        self._why_not_ready = why_not_ready
        self._why_hung = why_hung

    def closes(self) -> None:
        """The folder is being closed, to be reopened. This may take long on a slow disk without any
        report, so no conclusion is drawn from silence."""
        self._phase = _Phase.CLOSING

    def ends(self) -> None:
        """The broker is stopping for good. How long that may take is bounded elsewhere."""
        self._phase = _Phase.ENDING

    def failed(self, reason: str) -> None:
        """A write or an fsync failed: nothing is guaranteed any more."""
        self._failure = reason

    # ------------------------------------------------------------------------------ asked

    def why_not(self, question: Question) -> str:
        match question:
            case Question.STARTUP:
                return self._why_not_begun()
            case Question.LIVENESS:
                return self._failure or self._why_stalled()
            case Question.READINESS:
                return self._failure or self._why_not_usable()

    def _why_not_begun(self) -> str:
        if not self._has_begun and self._phase is _Phase.OPENING and self._advance is not None:
            self._has_begun = True
        if not self._has_begun:
            return "the broker has not begun to open its folder"
        return self._why_stalled()

    def _why_stalled(self) -> str:
        if self._phase is not _Phase.OPENING:
            return ""
        advance = self._advance
        since_s = self._opening_since_s if advance is None else advance.moment_s
        silent_s = self._clock.monotonic_s() - since_s
        if silent_s <= STALLED_S:
            return ""
        return f"opening the folder has made no progress for {silent_s:.0f} s{self._how_far()}"

    def _why_not_usable(self) -> str:
        match self._phase:
            case _Phase.STARTING:
                return "the broker is starting"
            case _Phase.OPENING:
                return f"the folder is being opened{self._how_far()}"
            case _Phase.SERVING:
                return self._why_not_ready()
            case _Phase.CLOSING:
                hung = self._why_hung()
                return f"the folder is being closed and will be opened again{hung and ': ' + hung}"
            case _Phase.ENDING:
                return "the broker is stopping"

    def _how_far(self) -> str:
        progress = UNMEASURED if self._advance is None else self._advance.progress
        if not progress.bytes_total:
            return ""
        share = progress.bytes_done / progress.bytes_total
        return (
            f": {progress.bytes_done} of {progress.bytes_total} bytes of the log checked "
            f"({share:.0%})"
        )
