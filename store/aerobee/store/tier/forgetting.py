"""Removal of segments from a tier, on an operator's command.

First a mark, so that no broker takes a missing manifest for a loss. Then the objects of a segment,
and its manifest last. While there is a manifest no writer is about to
name other objects of the segment, so nothing is removed that anyone waits for; and what a crash
leaves is found by its manifest and removed by the next try.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

from aerobee.runtime.errors import InvalidArgument
from aerobee.store.tier.manifest import Manifest, manifest_name, mark_name, segment_folder
from aerobee.store.tier.objects import Objects


def before(manifests: Sequence[Manifest], position: int) -> list[Manifest]:
    """PURE: the segments that end at a log offset or earlier, in the order to remove them. Raises
    InvalidArgument: nothing would be left of the newest part."""
    doomed = [each for each in manifests if each.end <= position]
    if manifests and len(doomed) == len(manifests):
        raise InvalidArgument(
            "this would remove the whole tier, which the broker goes on from: to give it up, unset "
            "tier.url and delete its objects with the tools of the object store"
        )
    return doomed


def older_than(manifests: Sequence[Manifest], written_ms: int) -> list[Manifest]:
    """PURE: the first segments of the log, as far as all were last written to before a time in Unix
    milliseconds; never the newest one."""
    return list(takewhile(lambda each: each.written_ms < written_ms, manifests[:-1]))


def at_or_after(manifests: Sequence[Manifest], position: int) -> list[Manifest]:
    """PURE: the segments that have bytes at a log offset or later, the newest first: whatever is
    left at any time is a chain."""
    return [each for each in reversed(manifests) if each.end > position]


def forget(
    objects: Objects,
    doomed: Sequence[Manifest],
    *,
    is_marked: bool,
    on_segment: Callable[[Manifest], None] = lambda _: None,
) -> None:
    """Remove segments in this order; repeat it after an error. Raises TierUnavailable.

    `is_marked`: a broker that still has one of them does not upload it again, nor keep it because
    it is not in the tier. Without marks it is as if they had never been there.
    """
    for manifest in doomed:
        if is_marked:
            objects.create(mark_name(manifest.base), manifest.digest.encode())
        listed = [found.name for found in objects.list(segment_folder(manifest.base))]
        for name in {*listed, manifest.object_name, manifest.tables_name}:
            objects.remove(name)
        objects.remove(manifest_name(manifest.base))
        on_segment(manifest)
