"""Memory that is filled by others is given away as bytes, without a copy."""

from __future__ import annotations

import tracemalloc

import pytest

from aerobee.runtime.place import Place


@pytest.mark.parametrize("size", [0, 1, 2, 100, 100_000])
def test_what_is_put_in_comes_out(size: int) -> None:
    content = bytes(range(256)) * 400
    place = Place(size)
    half = size // 2
    place.put(content[:half])
    place.room(size - half)[:] = content[half:size]
    assert len(place) == size
    message = place.message()
    assert type(message) is bytes
    assert message == content[:size]


def test_nothing_is_copied_at_the_end() -> None:
    tracemalloc.start()
    try:
        place = Place(1_000_000)
        place.put(bytes(1_000))
        assert len(place.message()) == 1_000_000
        assert tracemalloc.get_traced_memory()[1] < 1_100_000
    finally:
        tracemalloc.stop()
