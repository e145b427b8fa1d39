"""The audit log of one process: lines are handed to a thread, and callers wait only if they must.

One batch is on the thread at a time; lines that arrive meanwhile form the next one. When a wait for
a line ends, the line is on disk. Every few seconds, if there were lines, the ordinary log and a
metric report the place of the chain: a file whose end was cut off does not reach that place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from aerobee.runtime.audit_log.chain import Key
from aerobee.runtime.audit_log.config import AuditLogConfig, OnFailure
from aerobee.runtime.audit_log.log_file import AuditLogFile
from aerobee.runtime.audit_log.reading import LogPart, WantedLines, read_back, time_text
from aerobee.runtime.audit_log.refusal_limit import RefusalLimit
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy
from aerobee.runtime.log import log_event
from aerobee.runtime.metrics.families import AnyFamily, one_counter, one_gauge

log = logging.getLogger(__name__)

BATCH_MAX: Final = 256
PENDING_MAX: Final = 4_096
"""How many lines may wait for the thread; more are lost, and counted."""
WAIT_S: Final = 5.0
"""How long an act waits for its line; a disk that hangs counts as failed."""
READINGS_MAX: Final = 4
"""How many readings may wait for the thread, which writes lines between them."""
TELL_S: Final = 10.0
"""How often the place of the chain, and the number of refusals without a line, are reported."""


class _Pending(NamedTuple):
    content: Mapping[str, Any]
    done: asyncio.Future[bool] | None
    """Receives whether the line is on disk; None: nobody waits."""


class AuditLog:
    """The audit log. On the loop. Lines can be handed over while its context is entered."""

    def __init__(
        self,
        config: AuditLogConfig,
        node: str,
        *,
        clock: Clock,
        key: Callable[[], Key | None],
    ) -> None:
        """`node`: the writer's name; `key` is called for each batch."""
        self.is_strict = config.on_failure is OnFailure.REFUSE
        """An act may begin only after a line about it is written."""
        self._node = node
        self._clock = clock
        self._key = key
        self._file = AuditLogFile(
            Path(config.file), bytes_max=config.file_bytes_max, files_max=config.files_max
        )
        self._path = config.file
        self._limit = RefusalLimit(clock.monotonic_s())
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit-log")
        self._pending: list[_Pending] = []
        self._writing: asyncio.Task[None] | None = None
        self._telling: asyncio.TimerHandle | None = None
        self._place = self._told = self._file.place
        self._readings = 0
        self._lost = 0
        self._untold = 0
        """How many of these the audit log itself has not reported yet."""
        self._left_out = 0

    # -------------------------------------------------------------------------- begin and end

    async def __aenter__(self) -> Self:
        """Raises InvalidArgument: the file cannot be used."""
        loop = asyncio.get_running_loop()
        torn = await loop.run_in_executor(self._thread, self._file.open)
        began = {"event": "started", "version": version("aerobee")}
        if torn:
            began["why"] = f"{torn} bytes of a line that was not finished were cut off"
        await self.record(began)
        self._tell()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._telling is not None:
            self._telling.cancel()
        self._note_left_out()
        await self.record({"event": "stopped"})
        if self._writing is not None:
            await asyncio.wait((self._writing,), timeout=WAIT_S)
        self._tell()
        loop = asyncio.get_running_loop()
        closing = loop.run_in_executor(self._thread, self._file.close)
        await asyncio.wait((closing,), timeout=WAIT_S)
        self._thread.shutdown(wait=False)

    # -------------------------------------------------------------------------------- lines

    async def record(self, content: Mapping[str, Any]) -> bool:
        """Write a line; whether it is on disk."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._hand_over(content, done)
        await asyncio.wait((done,), timeout=WAIT_S)
        return done.done() and done.result()

    def note(self, content: Mapping[str, Any]) -> None:
        """Write a line without waiting."""
        self._hand_over(content, None)

    async def read_back(self, before: str, wanted: WantedLines, lines_max: int) -> LogPart:
        """As `reading.read_back`. A line that is written meanwhile waits for it, some 10 ms.

        Raises:
            Busy: too many others read, or the file cannot be read. InvalidArgument.
        """
        if self._readings >= READINGS_MAX:
            raise Busy("others read this audit log now; repeat the call after a second")
        read = partial(read_back, Path(self._path), self._node, before, wanted, lines_max)
        reading = asyncio.get_running_loop().run_in_executor(self._thread, read)
        # It may go on when the caller has gone.
        self._readings += 1
        reading.add_done_callback(self._end_reading)
        try:
            return await reading
        except OSError as error:
            raise Busy(
                f"the audit log {self._path} cannot be read: {error.strerror or error}; "
                "mend that, and call again"
            ) from None

    def _end_reading(self, reading: asyncio.Future[LogPart]) -> None:
        self._readings -= 1

    def takes_refusal(self, who: str, *, is_known: bool) -> bool:
        """Whether a refusal gets a line or is only counted."""
        if self._limit.passes(who, is_known=is_known, now_s=self._clock.monotonic_s()):
            return True
        self._left_out += 1
        self._tell_soon()
        return False

    def _hand_over(self, content: Mapping[str, Any], done: asyncio.Future[bool] | None) -> None:
        one = _Pending(self._signed(content), done)
        if len(self._pending) >= PENDING_MAX:
            self._lose([one])
            return
        self._pending.append(one)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(
                self._write_all(), name="audit-log"
            )

    def _signed(self, content: Mapping[str, Any]) -> dict[str, Any]:
        return {"time": time_text(self._clock.now_ms()), "node": self._node, **content}

    async def _write_all(self) -> None:
        try:
            while self._pending:
                batch = self._pending[:BATCH_MAX]
                del self._pending[:BATCH_MAX]
                await self._write(batch)
        finally:
            self._writing = None

    async def _write(self, batch: list[_Pending]) -> None:
        contents, told = [one.content for one in batch], self._untold
        if told:
            why = f"{told} lines could not be written"
            contents.insert(0, self._signed({"event": "lost", "why": why}))
        is_durable = any(one.done is not None for one in batch)
        try:
            append = partial(self._file.append, contents, self._key(), is_durable=is_durable)
            self._place = await asyncio.get_running_loop().run_in_executor(self._thread, append)
        except Exception as error:
            self._lose(batch)
            is_bug = not isinstance(error, OSError)
            log_event(
                log,
                "the audit log cannot be written",
                level=logging.ERROR,
                path=self._path,
                reason=error,
                lost=self._lost,
                error=error if is_bug else None,
            )
            return
        self._untold -= told
        for one in batch:
            if one.done is not None:
                one.done.set_result(True)
        self._tell_soon()

    def _lose(self, batch: list[_Pending]) -> None:
        self._lost += len(batch)
        self._untold += len(batch)
        for one in batch:
            if one.done is not None:
                one.done.set_result(False)

    # ------------------------------------------------------------------------- how far it is

    def _tell_soon(self) -> None:
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(TELL_S, self._tell_now)

    def _tell_now(self) -> None:
        self._telling = None
        self._note_left_out()
        self._tell()

    def _note_left_out(self) -> None:
        left_out = self._limit.take_left_out()
        if left_out:
            total = sum(left_out.values())
            self.note({"event": "left out", "refusals": total, "callers": left_out})

    def _tell(self) -> None:
        if self._place != self._told:
            self._told = self._place
            log_event(log, "audit log", path=self._path, place=self._place)

    def families(self) -> list[AnyFamily]:
        """As metrics."""
        return [
            one_gauge(
                "aerobee_audit_log_sequence",
                "Number of the last line of the audit log. It never falls.",
                self._place.sequence,
            ),
            one_counter(
                "aerobee_audit_log_lines_lost_total",
                "Lines of the audit log that could not be written.",
                self._lost,
            ),
            one_counter(
                "aerobee_audit_log_refusals_left_out_total",
                "Refusals that are only counted in the audit log, because there were too many.",
                self._left_out,
            ),
        ]
