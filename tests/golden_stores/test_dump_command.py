"""`aerobee store dump` from the command line, on stores of an Apache broker."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aerobee.cli.__main__ import main
from aerobee.cli.store.dump_document import describe_message, dump_store
from aerobee.cli.store.folder import index_geometry_on_disk, store_options
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.errors import StoreDamaged
from aerobee.store.format.batch_consume_queue_entry import BatchEntry
from aerobee.store.format.property_crc import reserve_property_crc, write_property_crc
from aerobee.store.format.record import HostAddress, Record, encode_record
from tests.support.documents import without_answers

Extract = Callable[[str], Any]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["store", "dump", *map(str, arguments)])


def options_of(golden: Any) -> list[str]:
    return [
        part for name, value in golden.config.items() for part in ("--config", f"{name}={value}")
    ]


def test_one_json_document_says_what_the_manifest_says(
    golden: Any, compare: Callable[[Any, Any], list[str]]
) -> None:
    before = golden.files()
    result = run(golden.root, "--json", *options_of(golden))
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document.pop("otherConfigs") == {
        "consumerFilter.json": {"filterDataByTopic": {}},
        "consumerOrderInfo.json": {"table": {}},
    }
    assert compare(golden.content, document) == []
    assert golden.files() == before, "looking changes nothing"


def test_one_topic_is_shown_to_people_without_the_settings_of_others(
    extract_golden: Extract,
) -> None:
    root = extract_golden("ipv6-v2").root
    topics = list(json.loads(run(root, "--json", "--messages-every", "0").stdout)["topics"])
    shown = run(root, "--topic", topics[0]).stdout
    assert topics[0] in shown
    assert not [name for name in topics[1:] if name in shown.split()]
    everything = run(root).stdout
    assert "Subscription groups" in everything
    assert "Subscription groups" not in shown


def test_the_questions_of_another_document_are_answered(
    golden: Any, tmp_path: Path, compare: Callable[[Any, Any], list[str]]
) -> None:
    """Other questions than the dump itself would ask: each with the answer of the manifest."""
    asked = json.loads(json.dumps(golden.content))
    for queues in asked["topics"].values():
        for queue in queues.values():
            queue["offsetByTime"] = queue["offsetByTime"][1::3]
            queue["outOfRange"] = queue["outOfRange"][-1:]
    asked["index"]["answers"] = asked["index"]["answers"][5::7]
    asked["index"]["windows"] = asked["index"]["windows"][::11]
    file = tmp_path / "questions.json"
    file.write_text(json.dumps({"topics": asked["topics"], "index": asked["index"]}))
    document = json.loads(run(golden.root, "--json", "--questions", file).stdout)
    assert compare(asked["topics"], document["topics"]) == []
    assert compare(asked["index"], document["index"]) == []


@pytest.mark.parametrize("text", ["nonsense", "[1]"])
def test_questions_that_are_no_document_are_refused(
    extract_golden: Extract, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "questions.json"
    file.write_text(text)
    result = run(extract_golden("ipv6-v2").root, "--questions", file)
    assert result.exit_code == 2
    assert "questions.json" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.thorough
def test_sizes_come_from_the_files_when_they_are_not_given(
    golden: Any, compare: Callable[[Any, Any], list[str]]
) -> None:
    document = dump_store(golden.root, {})
    assert document["config"] == golden.config
    assert compare(golden.content["index"], document["index"]) == []
    assert compare(golden.topics, without_answers(document["topics"])) == []


def test_no_index_file_in_use_leaves_the_usual_sizes(extract_golden: Extract) -> None:
    golden = extract_golden("ipv6-v2")
    for file in (golden.root / "index").iterdir():
        file.write_bytes(bytes(40 + 4 * 503 + 20 * 1200))
    assert index_geometry_on_disk(RealDisk(golden.root)) is None


def test_a_timer_wheel_of_another_length_is_a_problem_of_that_section_only(
    extract_golden: Extract,
) -> None:
    golden = extract_golden("ipv6-v2")
    (golden.root / "timerwheel").write_bytes(bytes(100))
    document = dump_store(golden.root, {})
    assert "38707200" in document["timer"]["problem"]
    assert document["commitLog"] == golden.manifest["commitLog"]


def test_batch_queues_are_shown_as_they_lie_there(extract_golden: Extract) -> None:
    golden = extract_golden("ipv6-v2")
    assert "batchQueues" not in dump_store(golden.root, {})
    entries = [BatchEntry(500 * n, 400, 7, 1_700_000_000_000 + n, 3 * n, 3) for n in range(1, 4)]
    data = b"".join(entry.encode() for entry in entries)
    folder = golden.root / "batchconsumequeue" / "Batched" / "2"
    folder.mkdir(parents=True)
    (folder / f"{0:020d}").write_bytes(data.ljust(460, b"\0"))
    assert dump_store(golden.root, {})["batchQueues"] == {
        "Batched": {
            "2": {
                "minOffset": 3,
                "maxOffset": 12,
                "maxPhysicalOffset": 1_900,
                "records": 3,
                "entriesSha256": hashlib.sha256(data).hexdigest(),
            }
        }
    }


def test_each_nth_message_and_the_last_are_listed_and_digests_cover_all(
    extract_golden: Extract,
) -> None:
    golden = extract_golden("retained")
    result = run(golden.root, "--json", "--messages-every", 10)
    document = json.loads(result.stdout)
    assert document["listedEvery"] == 10
    for topic, queues in golden.topics.items():
        for queue_id, queue in queues.items():
            shown = document["topics"][topic][queue_id]
            first, end = queue["minOffset"], queue["maxOffset"]
            wanted = sorted({*range(first, end, 10), end - 1})
            assert [message["queueOffset"] for message in shown["messages"]] == wanted
            assert shown["recordsSha256"] == queue["recordsSha256"]


def test_one_topic_alone_can_be_shown(extract_golden: Extract) -> None:
    golden = extract_golden("ipv6-v2")
    result = run(golden.root, "--json", "--topic", "AuditTrail", "--messages-every", 0)
    document = json.loads(result.stdout)
    assert list(document["topics"]) == ["AuditTrail"]
    assert all(queue["messages"] == [] for queue in document["topics"]["AuditTrail"].values())
    assert document["commitLog"] == golden.manifest["commitLog"]


def test_people_get_tables(extract_golden: Extract) -> None:
    golden = extract_golden("crashed")
    result = run(golden.root)
    assert result.exit_code == 0, result.output
    log = golden.manifest["commitLog"]
    assert f"Commit log: {log['records']} records, 0 to {log['maxOffset']}" in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    queue = golden.manifest["topics"]["OrderEvents"]["2"]
    assert [
        "OrderEvents",
        "2",
        str(queue["minOffset"]),
        str(queue["maxOffset"]),
        str(queue["maxPhysicalOffset"]),
        queue["recordsSha256"][:16],
    ] in lines
    assert ["crash-partial", "PaymentNotices", "3", "4"] in lines
    assert ["AuditTrail", "4", "4", "6"] in lines
    assert "Messages" not in result.stdout


def test_people_get_messages_when_they_ask_for_them(extract_golden: Extract) -> None:
    golden = extract_golden("ipv6-v2")
    result = run(golden.root, "--messages-every", 1, "--topic", "OrderEvents")
    message = golden.manifest["topics"]["OrderEvents"]["0"]["messages"][0]
    assert any(
        line.split()[:5]
        == ["OrderEvents", "0", "0", str(message["physicalOffset"]), str(message["size"])]
        for line in result.stdout.splitlines()
    )


def test_an_unknown_option_lists_the_known_ones(extract_golden: Extract) -> None:
    golden = extract_golden("ipv6-v2")
    result = run(golden.root, "--config", "mapedFileSizeCommitLog=262144")
    assert result.exit_code == 2
    assert "unknown store option 'mapedFileSizeCommitLog'" in result.stderr
    assert "mappedFileSizeCommitLog, mappedFileSizeConsumeQueue" in result.stderr


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("mappedFileSizeCommitLog", "--config takes NAME=VALUE"),
        ("mappedFileSizeCommitLog=big", "must be a whole number above 0"),
        ("maxIndexNum=0", "must be a whole number above 0"),
        ("mappedFileSizeCommitLog=12", "segment_bytes must be at least"),
        ("checkCRCOnRecover=maybe", "must be true or false"),
        ("messageDelayLevel=1s x", "such as 30s"),
    ],
)
def test_an_illegal_option_is_named(extract_golden: Extract, option: str, problem: str) -> None:
    golden = extract_golden("ipv6-v2")
    result = run(golden.root, "--config", option)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert "Traceback" not in result.output


def test_options_become_the_stores_configuration(tmp_path: Path) -> None:
    config = store_options(
        RealDisk(tmp_path),
        {
            "mappedFileSizeCommitLog": "4096",
            "mappedFileSizeConsumeQueue": "790",
            "checkCRCOnRecover": "FALSE",
            "messageDelayLevel": "1s 2m 3h 1d",
        },
    ).config
    assert config.segment_bytes == 4096
    assert config.consume_queue_entries_per_file == 40, "rounded up to whole entries"
    assert not config.check_crc_on_recovery
    assert config.delay_levels_ms == (1_000, 120_000, 10_800_000, 86_400_000)


def test_a_size_that_the_files_do_not_have_is_refused(extract_golden: Extract) -> None:
    golden = extract_golden("ipv6-v2")
    result = run(golden.root, "--config", "mappedFileSizeCommitLog=131072")
    assert result.exit_code == 3
    assert "262144" in result.stderr
    assert "Traceback" not in result.output


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        result = run(folder)
        assert result.exit_code == 3
        assert str(folder) in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_damage_in_sealed_data_is_reported_with_file_and_position(extract_golden: Extract) -> None:
    golden = extract_golden("clean-small")
    victim = golden.manifest["topics"]["OrderEvents"]["0"]["messages"][0]
    path = golden.root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[victim["physicalOffset"] + 100] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreDamaged) as raised:
        dump_store(golden.root, golden.config)
    assert raised.value.position == victim["physicalOffset"]
    result = run(golden.root, "--json")
    assert result.exit_code == 3
    assert f"commitlog/{0:020d}" in result.stderr
    assert str(victim["physicalOffset"]) in result.stderr
    assert result.stdout == ""


def test_damaged_config_files_are_reported(extract_golden: Extract) -> None:
    golden = extract_golden("ipv6-v2")
    (golden.root / "config" / "topics.json").write_text("{ nonsense")
    assert run(golden.root, "--messages-every", 0).exit_code == 0, "the backup answers"
    (golden.root / "config" / "topics.json.bak").write_text("{ nonsense")
    result = run(golden.root)
    assert result.exit_code == 3
    assert "line 1 column 3" in result.stderr


def test_unknown_options_are_typed_errors_for_callers(extract_golden: Extract) -> None:
    golden = extract_golden("ipv6-v2")
    with pytest.raises(InvalidArgument, match="unknown store option"):
        dump_store(golden.root, {"nonsense": "1"})


def message_of(body: bytes, *, properties: bytes = b"", sys_flag: int = 0) -> dict[str, Any]:
    data = encode_record(
        topic=b"t",
        body=body,
        properties=properties,
        sys_flag=sys_flag,
        born_timestamp_ms=1,
        born_host=HostAddress.parse("127.0.0.1:1"),
    )
    return describe_message(Record(data), 0)


def test_bodies_that_are_no_text_show_length_and_digest_only() -> None:
    message = message_of(b"\xff\xfe")
    assert message["bodyLength"] == 2
    assert "bodyText" not in message
    assert message_of(b"x" * 96)["bodyText"] == "x" * 96
    assert "bodyText" not in message_of(b"x" * 97)
    assert "bodyText" not in message_of(b"")


def test_properties_that_are_no_text_show_replacement_characters() -> None:
    message = message_of(b"x", properties=b"TAGS\x01a\xffb\x02k\x01v\x02")
    assert message["properties"] == {"TAGS": "a\ufffdb", "k": "v"}
    json.dumps(message)


def test_a_compressed_body_shows_both_sizes_or_what_is_wrong_with_it() -> None:
    message = message_of(zlib.compress(b"hello" * 100), sys_flag=1)
    assert message["plainBodyLength"] == 500
    broken = message_of(b"not compressed", sys_flag=1)
    assert "plainBodyLength" not in broken
    assert "zlib" in broken["plainBodyProblem"]


def test_a_record_whose_own_checksum_is_wrong_says_so() -> None:
    data = bytearray(
        encode_record(
            topic=b"t",
            body=b"x",
            properties=reserve_property_crc(b"TAGS\x01a\x02"),
            born_timestamp_ms=1,
            born_host=HostAddress.parse("127.0.0.1:1"),
        )
    )
    write_property_crc(data, 0, len(data))
    sound = describe_message(Record(data), 0)
    assert len(sound["properties"]["__CRC32#"]) == 10
    assert "propertyCrcProblem" not in sound
    data[20] ^= 1
    assert "not the one that was written" in describe_message(Record(data), 0)["propertyCrcProblem"]


def test_progress_ends_at_the_whole(extract_golden: Extract) -> None:
    golden = extract_golden("ipv6-v2")
    seen: list[tuple[int, int]] = []
    dump_store(golden.root, {}, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert all(0 < done <= total for done, total in seen)
