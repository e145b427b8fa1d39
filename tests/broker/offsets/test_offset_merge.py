"""The merge rule of committed offsets, for any journal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.offsets.merge import NO_LEASE, Change, ChangeKind, Standing, is_fenced, merge

EPOCHS = st.integers(0, 4)
COMMITS = st.builds(Change, st.just(ChangeKind.COMMIT), st.integers(0, 9), EPOCHS)
RESETS = st.builds(Change, st.just(ChangeKind.RESET), st.integers(0, 9), EPOCHS)
CHANGES = st.lists(st.one_of(COMMITS, COMMITS, RESETS), max_size=12)


def after(standing: Standing | None, *changes: Change) -> Standing | None:
    for change in changes:
        standing = merge(standing, change)
    return standing


def commit(offset: int, lease_epoch: int = NO_LEASE) -> Change:
    return Change(ChangeKind.COMMIT, offset, lease_epoch)


def reset(offset: int, lease_epoch: int = NO_LEASE) -> Change:
    return Change(ChangeKind.RESET, offset, lease_epoch)


@given(CHANGES)
def test_without_a_reset_no_offset_moves_back(changes: list[Change]) -> None:
    standing: Standing | None = None
    for change in changes:
        before, standing = standing, merge(standing, change)
        if before is not None and change.kind is not ChangeKind.RESET:
            assert standing.offset >= before.offset
            assert standing.lease_epoch_min >= before.lease_epoch_min


@given(CHANGES, CHANGES)
def test_what_is_applied_again_with_all_that_followed_changes_nothing(
    before: list[Change], again: list[Change]
) -> None:
    once = after(None, *before, *again)
    assert after(once, *again) == once


@given(CHANGES, CHANGES)
def test_an_image_says_to_a_new_reader_what_the_journal_says_to_an_old_one(
    before: list[Change], behind: list[Change]
) -> None:
    standing = after(None, *before)
    if standing is None:
        return
    image = Change(ChangeKind.IMAGE, *standing)
    assert merge(standing, image) is standing
    assert after(None, image, *behind) == after(standing, *behind)


def test_a_reset_sets_any_offset() -> None:
    assert after(None, commit(5), reset(2)) == Standing(2)
    assert after(None, commit(5), reset(9)) == Standing(9)
    assert after(None, reset(3)) == Standing(3)


def test_a_member_that_lost_its_queue_by_a_reset_moves_nothing_any_more() -> None:
    standing = after(None, commit(5, 7), reset(2, 7))
    assert standing is not None
    assert is_fenced(standing, 7)
    assert not is_fenced(standing, 8)
    assert not is_fenced(standing, NO_LEASE)
    assert merge(standing, commit(6, 7)) == standing
    assert after(standing, commit(3, 8)) == Standing(3, 8)


def test_the_later_lease_wins_over_the_larger_offset() -> None:
    standing = after(None, commit(5, 7), commit(6, 9))
    assert after(standing, commit(8, 7)) == Standing(6, 9)
    assert after(standing, commit(4, 10)) == Standing(6, 10), "but does not move it back"


def test_a_commit_without_a_lease_counts_as_under_the_present_one() -> None:
    standing = after(None, commit(5, 7))
    assert after(standing, commit(6)) == Standing(6, 7)
    assert after(standing, commit(4)) == standing
