"""The local offset file: Apache's form, and what survives a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.client_core import MessageQueue
from aerobee.consumer_client.committing import Commit
from aerobee.consumer_client.local_offsets import (
    FileOffsetStore,
    LocalOffsets,
    decode_offsets,
    encode_offsets,
)
from aerobee.runtime import errors

Q0 = MessageQueue("TopicA", "broker-a", 0)
Q1 = MessageQueue("TopicA", "broker-a", 1)

WRITTEN_BY_APACHE = b"""{
\t"offsetTable":{{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":0,
\t\t\t"topic":"TopicA"
\t\t}:128,{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":1,
\t\t\t"topic":"TopicA"
\t\t}:7
\t}
}"""

names = st.text(min_size=1, max_size=20)


def test_apaches_file_is_read() -> None:
    assert decode_offsets(WRITTEN_BY_APACHE).offsets == {Q0: 128, Q1: 7}


def test_ours_is_byte_for_byte_apaches() -> None:
    assert encode_offsets(LocalOffsets({Q1: 7, Q0: 128})) == WRITTEN_BY_APACHE


def test_keys_quoted_by_stricter_writers_are_read() -> None:
    quoted = (
        rb'{"offsetTable":{"{\"brokerName\":\"broker-a\",\"queueId\":0,\"topic\":\"TopicA\"}":5}}'
    )
    assert decode_offsets(quoted).offsets == {Q0: 5}


@given(st.dictionaries(st.builds(MessageQueue, names, names, st.integers(0, 99)), st.integers(0)))
def test_what_is_written_is_read(offsets: dict[MessageQueue, int]) -> None:
    assert decode_offsets(encode_offsets(LocalOffsets(offsets))).offsets == offsets


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"[]",
        b"{",
        b'{"offsetTable":[]}',
        b'{"offsetTable":{},"deletedTopics":[]}',
        b'{"offsetTable":{},"deletedTopics":{"t":"1"}}',
        b'{"offsetTable":{{"topic":"t"}:1}}',
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:"1"}}',
    ],
)
def test_a_broken_file_says_where(broken: bytes) -> None:
    with pytest.raises(ValueError, match="line 1"):
        decode_offsets(broken)


async def test_offsets_survive_in_apaches_place(tmp_path: Path) -> None:
    store = FileOffsetStore("host@DEFAULT", "g", folder=tmp_path)
    assert await store.read([Q0]) == {}
    assert await store.commit([Commit(Q0, 5, 0), Commit(Q1, 6, 0)]) == {}
    assert await store.commit([Commit(Q0, 9, 0)]) == {}
    assert store.path == tmp_path / "host@DEFAULT" / "g" / "offsets.json"
    assert decode_offsets(store.path.read_bytes()).offsets == {Q0: 9, Q1: 6}
    backup = store.path.with_name("offsets.json.bak")
    assert decode_offsets(backup.read_bytes()).offsets == {Q0: 5, Q1: 6}
    again = FileOffsetStore("host@DEFAULT", "g", folder=tmp_path)
    assert await again.read([Q0, Q1]) == {Q0: 9, Q1: 6}
    made = [store.path, backup, store.path.parent, store.path.parent.parent]
    assert [path.stat().st_mode & 0o077 for path in made] == [0] * 4, "nobody else's to read"


async def test_the_backup_answers_when_the_file_is_missing_empty_or_damaged(tmp_path: Path) -> None:
    for damage in (None, b"", b'{"offsetTable":{{'):
        folder = tmp_path / repr(damage)
        store = FileOffsetStore("c", "g", folder=folder)
        await store.commit([Commit(Q0, 5, 0)])
        await store.commit([Commit(Q0, 6, 0)])
        if damage is None:
            store.path.unlink()
        else:
            store.path.write_bytes(damage)
        again = FileOffsetStore("c", "g", folder=folder)
        assert await again.read([Q0]) == {Q0: 5}
        # The damage does not push out the good backup.
        assert await again.commit([Commit(Q0, 8, 0)]) == {}
        assert decode_offsets(store.path.read_bytes()).offsets == {Q0: 8}
        backup = store.path.with_name("offsets.json.bak")
        assert decode_offsets(backup.read_bytes()).offsets == {Q0: 5}


async def test_damage_without_a_backup_is_an_error_and_is_not_overwritten(tmp_path: Path) -> None:
    store = FileOffsetStore("c", "g", folder=tmp_path)
    store.path.parent.mkdir(parents=True)
    store.path.write_bytes(b"{oops")
    with pytest.raises(errors.InvalidArgument, match="repair it, or remove it"):
        await store.read([Q0])
    refused = await store.commit([Commit(Q0, 1, 0)])
    assert isinstance(refused[Q0], errors.InvalidArgument)
    assert store.path.read_bytes() == b"{oops"


async def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"a file where a folder should be")
    store = FileOffsetStore("c", "g", folder=tmp_path)
    refused = await store.commit([Commit(Q0, 1, 0)])
    assert "cannot" in str(refused[Q0])


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b"])
def test_names_that_would_leave_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgument):
        FileOffsetStore(name, "g", folder=tmp_path)


async def test_offsets_of_a_deleted_topic_are_not_those_of_the_next_one(tmp_path: Path) -> None:
    deleted_at_ms = 0

    def store() -> FileOffsetStore:
        return FileOffsetStore("c", "g", folder=tmp_path, deleted_at_ms=lambda _: deleted_at_ms)

    first = store()
    await first.read([Q0])
    await first.commit([Commit(Q0, 50, 0), Commit(Q1, 60, 0)])
    deleted_at_ms = 1_000
    # What the old topic's reader still had to commit is its own.
    await first.commit([Commit(Q0, 51, 0)])
    for _ in range(2):
        assert await store().read([Q0, Q1]) == {Q0: 0, Q1: 0}
    again = store()
    assert await again.read([Q0]) == {Q0: 0}
    await again.commit([Commit(Q0, 7, 0)])
    assert await store().read([Q0, Q1]) == {Q0: 7, Q1: 0}
    # Nameservers forget deletions after a long time.
    deleted_at_ms = 0
    assert await store().read([Q0]) == {Q0: 7}


async def test_offsets_that_another_client_wrote_count_for_the_topic_there_is(
    tmp_path: Path,
) -> None:
    store = FileOffsetStore("c", "g", folder=tmp_path, deleted_at_ms=lambda _: 1_000)
    store.path.parent.mkdir(parents=True)
    store.path.write_bytes(WRITTEN_BY_APACHE)
    assert await store.read([Q0, Q1]) == {Q0: 128, Q1: 7}
