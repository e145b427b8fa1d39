"""Names of store files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.names import FileNameIllegal, file_name, is_file_name, parse_file_name


def test_the_third_gigabyte_file_has_its_known_name() -> None:
    assert file_name(2 << 30) == "00000000002147483648"


@given(st.integers(0, (1 << 63) - 1))
def test_an_offset_comes_back_from_its_name(offset: int) -> None:
    assert parse_file_name(file_name(offset)) == offset
    assert is_file_name(file_name(offset))


@pytest.mark.parametrize(
    "name",
    ["", "0", "0" * 19, "0" * 21, "-" + "0" * 19, "0000000000214748364x", "٠" * 20, "9" * 20],
)
def test_strays_are_refused(name: str) -> None:
    assert not is_file_name(name)
    with pytest.raises(FileNameIllegal):
        parse_file_name(name)


@pytest.mark.parametrize("offset", [-1, 1 << 63])
def test_no_file_begins_outside_the_sequence(offset: int) -> None:
    with pytest.raises(FileNameIllegal):
        file_name(offset)
