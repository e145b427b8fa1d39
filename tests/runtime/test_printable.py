"""What others wrote cannot command a terminal or forge a line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.runtime.printable import printable, printable_json

COMMANDS = {
    "title": ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
    "clear": ("a\x1b[2J", r"a\x1b[2J"),
    "8-bit CSI": ("\x9b31m", r"\x9b31m"),
    "forged line": ("x\r\nFAKE", r"x\r\nFAKE"),
    "delete": ("\x7f", r"\x7f"),
    "bidi override": ("\u202etxt.exe", r"\u202etxt.exe"),
    "line separator": ("a\u2028b", r"a\u2028b"),
    "half surrogate": ("\udc80", r"\udc80"),
    "tag character": ("\U000e0041", r"\U000e0041"),
}


@pytest.mark.parametrize(("text", "shown"), COMMANDS.values(), ids=COMMANDS)
def test_what_a_terminal_would_obey_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("text", ["", "plain text", "Grüße, 你好\u3000世界", "1\xa0000"])
def test_what_is_read_stays(text: str) -> None:
    assert printable(text) == text


def test_only_what_is_kept_stays() -> None:
    assert printable("a\nb\tc\x1b", keep="\n\t") == "a\nb\tc\\x1b"


@given(st.text())
def test_nothing_that_is_not_seen_is_left_and_json_says_the_same(text: str) -> None:
    assert all(each.isprintable() or each.isspace() for each in printable(text))
    assert not set(printable(text)) & set("\x1b\r\n\x9b\u2028\u202e")
    encoded = printable_json(json.dumps({"k": [text]}, ensure_ascii=False, indent=1))
    assert json.loads(encoded) == {"k": [text]}
    assert not set(encoded) & set("\x1b\r\x7f\x9b\u2028\u202e")
