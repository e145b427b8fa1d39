"""The epoch file: the bytes that Apache's broker writes, and what is no such file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.epoch_file import EpochFileIllegal, decode_epochs, encode_epochs

KNOWN = b"3\n1951541199\n1-0\n2-1073742848\n5-1073750000\n"
KNOWN_ENTRIES = [(1, 0), (2, 1073742848), (5, 1073750000)]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int]]:
    epochs = sorted(draw(st.sets(st.integers(0, 2**31 - 1), max_size=20)))
    starts = draw(
        st.lists(st.integers(0, 2**63 - 1), min_size=len(epochs), max_size=len(epochs)).map(sorted)
    )
    return list(zip(epochs, starts, strict=True))


def test_known_files_are_written_and_read_byte_for_byte() -> None:
    assert encode_epochs(KNOWN_ENTRIES) == KNOWN
    assert decode_epochs(KNOWN) == KNOWN_ENTRIES
    assert encode_epochs([(7, 7000), (8, 8000)]) == b"2\n773307083\n7-7000\n8-8000\n"


@given(histories())
def test_every_history_is_read_back_as_it_was_written(entries: list[tuple[int, int]]) -> None:
    assert decode_epochs(encode_epochs(entries)) == entries


def test_a_checksum_of_zero_is_not_checked() -> None:
    assert decode_epochs(b"1\n0\n4-12\n") == [(4, 12)]


@given(histories().filter(bool), st.data())
def test_a_torn_file_is_refused(entries: list[tuple[int, int]], data: st.DataObject) -> None:
    whole = encode_epochs(entries)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(EpochFileIllegal):
        decode_epochs(whole[:cut])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 40,
        b"x\n0\n",
        b"1\n0\n4+12\n",
        b"1\n0\n-4-12\n",
        b"2\n0\n4-12\n",  # one entry is missing
        b"2\n0\n4-12\n4-13\n",  # epochs rise
        b"2\n0\n4-12\n5-11\n",  # offsets do not fall
        b"1\n7\n4-12\n",  # the checksum is another
        b"1\n0\n4-99999999999999999999\n",
        KNOWN.replace(b"5-", b"6-"),
    ],
)
def test_what_is_no_epoch_file_is_refused(data: bytes) -> None:
    with pytest.raises(EpochFileIllegal):
        decode_epochs(data)
