"""A manifest is read as it was written, or refused; a chain shows what is missing or foreign."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.runtime.errors import TierDamaged
from aerobee.store.tier.manifest import (
    LocalSegment,
    Manifest,
    decode_manifest,
    epochs_up_to,
    manifest_base,
    manifest_name,
    segment_base,
    segment_object_name,
)

OFFSETS = st.integers(0, 1 << 62)
HEX = st.text("0123456789abcdef", min_size=64, max_size=64)


@st.composite
def epoch_lists(draw: st.DrawFn, end: int = 1 << 62) -> tuple[tuple[int, int], ...]:
    """Epochs that rise, with starts that do not fall."""
    epochs = sorted(draw(st.sets(st.integers(1, 1_000), max_size=6)))
    starts = sorted(draw(st.lists(st.integers(0, end), min_size=len(epochs), max_size=len(epochs))))
    return tuple(zip(epochs, starts, strict=True))


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    base = draw(OFFSETS)
    end = draw(st.integers(base + 1, (1 << 62) + 1))
    return Manifest(
        base=base,
        end=end,
        object_name=segment_object_name(base, epoch=draw(st.integers(0, 10**9)), writer="ab"),
        crc32=draw(st.integers(0, (1 << 32) - 1)),
        head_sha256=draw(HEX),
        tables_sha256=draw(HEX),
        epochs=epochs_up_to(draw(epoch_lists()), end),
        epoch=draw(st.integers(0, 10**9)),
        written_ms=draw(OFFSETS),
        uploaded_ms=draw(OFFSETS),
        previous=draw(HEX | st.just("")),
    )


@given(manifests())
def test_a_manifest_is_read_as_it_was_written(manifest: Manifest) -> None:
    assert decode_manifest(manifest.encode()) == manifest


@given(manifests(), st.data())
def test_a_manifest_with_any_changed_or_missing_byte_is_refused(
    manifest: Manifest, data: st.DataObject
) -> None:
    whole = manifest.encode()
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(changed), whole[:at], whole[:at] + whole[at + 1 :], whole + b"\0"):
        with pytest.raises(TierDamaged):
            decode_manifest(damaged)


@given(st.binary(max_size=200) | st.sampled_from([b"[]", b"{}", b"null", b"7", b"[" * 9_999]))
def test_foreign_bytes_are_refused_as_damage(data: bytes) -> None:
    with pytest.raises(TierDamaged):
        decode_manifest(data)


def test_a_manifest_of_a_newer_format_says_which_version_to_use() -> None:
    with pytest.raises(TierDamaged, match="use the version that wrote it"):
        decode_manifest(b'{"format": 2}')


@given(manifests(), manifests())
def test_a_chain_goes_on_only_with_the_next_segment_of_the_same_chain(
    first: Manifest, other: Manifest
) -> None:
    following = replace(other, base=first.end, end=first.end + 8, previous=first.digest)
    assert following.follows(first)
    assert not replace(following, base=first.end + 8, end=first.end + 16).follows(first)
    assert not following.follows(replace(first, crc32=first.crc32 ^ 1))
    assert not replace(following, previous="").follows(first)


@given(manifests())
def test_a_log_agrees_by_its_place_its_last_epoch_and_its_first_bytes(manifest: Manifest) -> None:
    local = LocalSegment(
        base=manifest.base,
        end=manifest.end,
        epochs=manifest.epochs,
        head_sha256=manifest.head_sha256,
    )
    assert manifest.agrees(local)
    assert not manifest.agrees(replace(local, end=local.end + 1))
    assert not manifest.agrees(replace(local, head_sha256="0" * 63 + "x"))
    assert not manifest.agrees(replace(local, epochs=(*local.epochs, (10**6, manifest.base))))


@given(epoch_lists(), OFFSETS)
def test_epochs_without_bytes_make_no_difference(
    epochs: tuple[tuple[int, int], ...], end: int
) -> None:
    kept = epochs_up_to(epochs, end)
    assert epochs_up_to(kept, end) == kept

    def epoch_at(history: tuple[tuple[int, int], ...], position: int) -> int:
        return max((epoch for epoch, start in history if start <= position), default=0)

    for position in {start for _, start in epochs if start < end} | {end - 1}:
        assert epoch_at(kept, position) == epoch_at(epochs, position)


@given(OFFSETS, st.integers(0, 10**9))
def test_names_say_which_segment_they_are_about(base: int, epoch: int) -> None:
    assert manifest_base(manifest_name(base)) == base
    assert segment_base(segment_object_name(base, epoch=epoch, writer="x")) == base


@pytest.mark.parametrize(
    "name",
    ["chain/", "chain/7.json", "chain/x.json", "other/00000000000000000000.json", "segments/"],
)
def test_other_names_are_of_no_segment(name: str) -> None:
    assert manifest_base(name) is None
    assert segment_base(name) is None
