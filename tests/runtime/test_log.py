"""One line per event, whatever the fields hold."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from aerobee.runtime.log import (
    JsonFormatter,
    LogConfig,
    LogFormat,
    LogLevel,
    TextFormatter,
    configure_logging,
    log_event,
)


@pytest.fixture
def logger() -> Iterator[tuple[logging.Logger, logging.StreamHandler[io.StringIO]]]:
    """A logger of its own that writes to memory."""
    logger = logging.Logger("aerobee.store.engine")
    handler = logging.StreamHandler(io.StringIO())
    logger.addHandler(handler)
    yield logger, handler
    handler.close()


def test_text_is_one_line_with_fields_that_cannot_be_misread(
    logger: tuple[logging.Logger, logging.StreamHandler[io.StringIO]],
) -> None:
    log, handler = logger
    handler.setFormatter(TextFormatter())
    log_event(log, "segment rolled", base=0, name="a b", empty="", lines="x\ny", quoted='"', ok=1.5)
    line = handler.stream.getvalue()
    assert line.count("\n") == 1
    assert line[23:] == (
        "Z INFO store.engine segment rolled "
        'base=0 name="a b" empty="" lines="x\\ny" quoted="\\"" ok=1.5\n'
    )


def test_json_is_one_object_and_no_field_hides_what_every_line_has(
    logger: tuple[logging.Logger, logging.StreamHandler[io.StringIO]],
) -> None:
    log, handler = logger
    handler.setFormatter(JsonFormatter())
    log_event(log, "flush failed", error=OSError("disk full"), time="never", topic="主题", n=1)
    text = handler.stream.getvalue()
    assert text.count("\n") == 1
    document = json.loads(text)
    assert (document["event"], document["level"], document["logger"]) == (
        "flush failed",
        "INFO",
        "aerobee.store.engine",
    )
    assert (document["field_time"], document["topic"], document["n"]) == ("never", "主题", 1)
    assert document["time"] != "never"
    assert "disk full" in document["traceback"]


def test_an_event_below_the_level_costs_nothing_and_writes_nothing(
    logger: tuple[logging.Logger, logging.StreamHandler[io.StringIO]],
) -> None:
    log, handler = logger
    log.setLevel(logging.WARNING)
    log_event(log, "detail", value=1)
    assert handler.stream.getvalue() == ""


def test_configuring_replaces_what_was_there() -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    try:
        configure_logging(stream=io.StringIO())
        configure_logging(LogConfig(format=LogFormat.JSON, level=LogLevel.WARNING), stream=stream)
        log_event(logging.getLogger("aerobee.x"), "quiet")
        log_event(logging.getLogger("aerobee.x"), "loud", level=logging.ERROR)
        assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["loud"]
    finally:
        root.handlers[:] = before
        root.setLevel(level)


class Interrupted(io.StringIO):
    """Somebody logs something while what was held back is written."""

    def write(self, text: str) -> int:
        if "repeated" in text:
            log_event(logging.getLogger("aerobee.x"), "meanwhile")
        return super().write(text)


def test_no_line_is_lost_or_written_twice_while_logging_is_configured_anew() -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    old, new = Interrupted(), io.StringIO()
    log = logging.getLogger("aerobee.x")
    try:
        configure_logging(LogConfig(repeats_per_s_max=1), stream=old)
        log_event(log, "lost")
        log_event(log, "lost")
        configure_logging(stream=new)
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert old.getvalue().count("lost") == 2
    assert (old.getvalue() + new.getvalue()).count("meanwhile") == 1


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_no_line_holds_what_a_terminal_would_obey(
    formatter: logging.Formatter,
    logger: tuple[logging.Logger, logging.StreamHandler[io.StringIO]],
) -> None:
    hostile = "a\x1b[2Jb\x9b31mc\u202ed\x7f"
    log, handler = logger
    handler.setFormatter(formatter)
    log_event(log, f"refused {hostile}", name=hostile, error=ValueError(hostile))
    written = handler.stream.getvalue()
    assert written.count("31mc") == 3
    assert not set(written) & set("\x1b\x9b\u202e\x7f")


def test_a_reason_without_words_still_gives_a_reason(
    logger: tuple[logging.Logger, logging.StreamHandler[io.StringIO]],
) -> None:
    log, handler = logger
    handler.setFormatter(TextFormatter())
    log_event(log, "registration not renewed", reason=TimeoutError(), other=KeyError())
    assert handler.stream.getvalue().endswith('reason="no answer in time" other=KeyError\n')
