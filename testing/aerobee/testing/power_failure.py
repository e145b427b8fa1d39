"""What a disk may hold after a power failure.

The contract: a file's bytes and length are durable once `datasync` has returned, a directory's
names once `fsync_directory` has returned. Of everything else any part may have reached the disk:

- a sector has any of the contents that it had since the last sync, each sector independently;
- a length is any that the file had since, and growth by a write may also end at a page in between;
- a name change is there or not; one that is there brings the earlier ones of the same names with
  it. A rename within a directory is one change; one between two directories is two, which a
  journal keeps together and a disk without a journal does not.

A Fate answers for each change. Fates are drawn by seed from several models: a journal that has
names and lengths in order up to some point, no order at all, everything lost, everything kept.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from aerobee.testing.simulated_nodes import (
    PAGE,
    DirectoryNode,
    FileNode,
    NameChange,
    Node,
    Pages,
    Resized,
    clip,
    place,
)

Keeps = Callable[[int], bool]


def always(_: int) -> bool:
    return True


def never(_: int) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Fate:
    """Whether the change with a sequence number reached the disk: as a name change, as a length, as
    growth by a write, and (asked for each sector of a write) as data."""

    description: str
    keeps_name: Keeps
    keeps_length: Keeps  # one that was set
    keeps_growth: Keeps  # one that a write gave
    keeps_sector: Keeps
    sector_bytes: int = 512
    # How much of the growth by a write of this many pages counts, in pages.
    torn_pages: Callable[[int], int] = lambda pages: pages


LOSE_ALL = Fate("nothing kept", never, never, never, never)
KEEP_ALL = Fate("everything kept", always, always, always, always)
KEEP_NAMES = Fate("names kept, bytes lost", always, never, never, never)
KEEP_LENGTHS = Fate("names and lengths kept, bytes lost", always, always, always, never)
KEEP_BYTES = Fate("bytes kept, names lost", never, always, always, always)
SIMPLE_FATES = (LOSE_ALL, KEEP_ALL, KEEP_LENGTHS, KEEP_NAMES, KEEP_BYTES)


def draw_fate(chance: random.Random, *, promised: int, end: int, has_journal: bool) -> Fate:
    """A fate for changes with sequence numbers up to `end`.

    With a journal, name changes and set lengths reach the disk in order; name changes up to
    `promised` were promised, so the journal reaches at least that far.
    """
    if not has_journal and chance.random() < 0.15:
        return chance.choice(SIMPLE_FATES)
    journal_end = chance.choice((promised, end, chance.randint(promised, end)))
    loose_end = chance.randint(0, end)

    def in_journal(sequence: int) -> bool:
        return sequence <= journal_end

    def before_loose_end(sequence: int) -> bool:
        return sequence <= loose_end

    share = chance.choice((0.2, 0.5, 0.8))

    def coin(_: int) -> bool:
        return chance.random() < share

    of_write: dict[int, bool] = {}

    def whole_write(sequence: int) -> bool:
        if sequence not in of_write:
            of_write[sequence] = chance.random() < share
        return of_write[sequence]

    names = "journal" if has_journal else chance.choice(("prefix", "any", "any", "all", "none"))
    lengths = names if has_journal else chance.choice((names, "any", "all", "none"))
    growth = chance.choice((lengths, "any", "all", "none"))
    data = chance.choice(("writes", "writes", "sectors", "sectors", "prefix", "all", "none"))
    sector_bytes = chance.choice((512, 4096))
    named: dict[str, Keeps] = {
        "journal": in_journal,
        "prefix": before_loose_end,
        "any": coin,
        "all": always,
        "none": never,
        "writes": whole_write,
        "sectors": coin,
    }
    torn = chance.random() < 0.5
    return Fate(
        f"names: {names}, lengths: {lengths}, growth: {growth}, data: {data} of {sector_bytes}, "
        f"share {share}, journal up to {journal_end}, prefix up to {loose_end} of {end}",
        named[names],
        named[lengths],
        named[growth],
        named[data],
        sector_bytes,
        torn_pages=(lambda pages: chance.randint(0, pages)) if torn else (lambda pages: pages),
    )


# ---------------------------------------------------------------------------------- names


def surviving_tree(
    root: DirectoryNode, journal: Iterable[NameChange], fate: Fate
) -> tuple[DirectoryNode, list[NameChange]]:
    """A new tree of what the disk has, and the name changes that are part of it."""
    kept = _kept_changes(list(journal), fate)
    changes: dict[int, list[NameChange]] = {}
    for change in kept:
        changes.setdefault(id(change.directory), []).append(change)
    files: dict[int, FileNode] = {}

    def survivor(node: Node) -> Node:
        if isinstance(node, FileNode):
            if id(node) not in files:  # a node may have two names
                files[id(node)] = surviving_file(node, fate)
            return files[id(node)]
        names = dict(node.durable)
        for change in changes.get(id(node), ()):
            for name, meaning in change.names:
                if meaning is None:
                    names.pop(name, None)
                else:
                    names[name] = meaning
        directory = DirectoryNode()
        directory.names = {name: survivor(names[name]) for name in sorted(names)}
        directory.durable = dict(directory.names)
        return directory

    tree = survivor(root)
    assert isinstance(tree, DirectoryNode)
    return tree, kept


def _kept_changes(journal: list[NameChange], fate: Fate) -> list[NameChange]:
    """A change that is kept requires the earlier ones of the same names."""
    kept = []
    needed: set[tuple[int, str]] = set()
    for change in reversed(journal):
        names = {(id(change.directory), name) for name, _ in change.names}
        if not needed.isdisjoint(names) or fate.keeps_name(change.sequence):
            needed |= names
            kept.append(change)
    return kept[::-1]


# ---------------------------------------------------------------------------------- bytes


def surviving_file(node: FileNode, fate: Fate) -> FileNode:
    """A new file with what the disk has of this one."""
    pages: Pages = {index: bytearray(page) for index, page in node.durable_pages.items()}
    size = node.durable_size
    if node.changes or node.stranded:
        size = _apply_changes(node, pages, fate)
        clip(pages, size)
    survivor = FileNode()
    survivor.pages = pages
    survivor.modified_ms = node.modified_ms
    survivor.durable_pages = {index: bytes(page) for index, page in pages.items()}
    survivor.size = survivor.durable_size = size
    return survivor


def _apply_changes(node: FileNode, pages: Pages, fate: Fate) -> int:
    """Apply to `pages` what reached the disk; returns the length."""
    # What the page cache held at each moment: a sector reaches the disk as it was then.
    cache: Pages = {index: bytearray(page) for index, page in node.durable_pages.items()}
    for index, page in sorted(node.stranded.items()):
        cache[index] = bytearray(page)
        _keep_sectors(pages, cache, index * PAGE, (index + 1) * PAGE, 0, fate)
    size, last_kept = _surviving_length(node, fate)
    lost_from: int | None = None
    for number, change in enumerate(node.changes):
        if isinstance(change, Resized):
            clip(cache, change.size)
            if number <= last_kept:
                clip(pages, change.size)
            else:
                # Data after a truncation that never happened has no place on the disk.
                lost_from = change.size if lost_from is None else min(lost_from, change.size)
            continue
        place(cache, change.offset, change.data)
        end = change.offset + len(change.data)
        if lost_from is not None:
            end = min(end, lost_from)
        _keep_sectors(pages, cache, change.offset, end, change.sequence, fate)
    return size


def _keep_sectors(
    pages: Pages, cache: Pages, offset: int, end: int, sequence: int, fate: Fate
) -> None:
    sector_bytes = fate.sector_bytes
    for start in range(offset - offset % sector_bytes, end, sector_bytes):
        if fate.keeps_sector(sequence):
            at = start % PAGE
            page = cache[start // PAGE]
            place(pages, start, bytes(page[at : at + sector_bytes]))


def _surviving_length(node: FileNode, fate: Fate) -> tuple[int, int]:
    """The length, and the index of the change that gave it (-1: none)."""
    for number in range(len(node.changes) - 1, -1, -1):
        change = node.changes[number]
        if isinstance(change, Resized):
            if fate.keeps_length(change.sequence):
                return change.size, number
        elif change.grown_to >= 0 and fate.keeps_growth(change.sequence):
            return _torn_growth(_length_before(node, number), change.grown_to, fate), number
    return node.durable_size, -1


def _torn_growth(before: int, after: int, fate: Fate) -> int:
    pages_grown = after // PAGE - before // PAGE
    kept = fate.torn_pages(pages_grown + 1)
    if kept > pages_grown:
        return after
    return before if kept == 0 else (before // PAGE + kept) * PAGE


def _length_before(node: FileNode, number: int) -> int:
    for change in reversed(node.changes[:number]):
        if isinstance(change, Resized):
            return change.size
        if change.grown_to >= 0:
            return change.grown_to
    return node.durable_size
