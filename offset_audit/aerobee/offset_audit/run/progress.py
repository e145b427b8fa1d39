"""How a run reports where it is, without knowing who watches."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import Protocol

from aerobee.runtime.clock import Clock


class Progress(Protocol):
    """Displays progress; called from the run's own thread."""

    def stage(self, title: str) -> AbstractContextManager[None]:
        """A part of the run, for as long as it is entered."""
        ...

    def note(self, text: str) -> None:
        """Something worth knowing about the stage just finished."""
        ...


class PlainProgress:
    """A line on standard error when a stage ends: for logs, pipes and `spark-submit`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        begun_s = self._clock.monotonic_s()
        yield
        print(f"{title}: {self._clock.monotonic_s() - begun_s:.1f} s", file=sys.stderr)

    def note(self, text: str) -> None:
        print(f"  {text}", file=sys.stderr)


class SilentProgress:
    """For a run of which only the results are shown."""

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        yield

    def note(self, text: str) -> None:
        return


class TimedProgress:
    """Measures the stages for the summary and passes them on."""

    def __init__(self, shown: Progress, clock: Clock) -> None:
        self._shown = shown
        self._clock = clock
        self._stages_ms: dict[str, int] = {}

    @property
    def stages_ms(self) -> Mapping[str, int]:
        return MappingProxyType(self._stages_ms)

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        begun_s = self._clock.monotonic_s()
        try:
            with self._shown.stage(title):
                yield
        finally:
            took_ms = round((self._clock.monotonic_s() - begun_s) * 1_000)
            self._stages_ms[title] = self._stages_ms.get(title, 0) + took_ms

    def note(self, text: str) -> None:
        self._shown.note(text)
