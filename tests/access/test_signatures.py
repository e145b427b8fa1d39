"""Signatures of the official clients, and secrets as etcd keeps them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.access.policies import Policy
from aerobee.access.records import UnreadableRecord, decode_user, encode_policy, encode_user
from aerobee.access.resources import Action, Kind, Need
from aerobee.access.sealing import NONCE_BYTES, ClusterSecrets, seal, unseal
from aerobee.access.signature import read_signature, sign
from aerobee.access.table import AccessTable, Record, Records
from aerobee.access.users import User
from aerobee.runtime.errors import InvalidArgument, Unauthenticated

TIME = "20240101T000000Z"
HEX = "9d0586709e79e3c7f43bf01f6eb5f328aa7ccd78"
NEW = ClusterSecrets([b"n" * 32])
OLD = ClusterSecrets([b"o" * 32])
NEED = Need(Kind.TOPIC, "t", Action.PUB)
BOTH = ClusterSecrets([b"n" * 32, b"o" * 32])
TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=80)


def claimed(header: str) -> dict[str, str | bytes]:
    return {"authorization": header, "x-mq-date-time": TIME}


@pytest.mark.parametrize("credential", ["AccessKey", "AccessKey//Rocketmq", "AccessKey/cn/Rocket"])
@pytest.mark.parametrize("digest", [HEX, HEX.upper()])
def test_the_published_example_is_good(credential: str, digest: str) -> None:
    signed = read_signature(
        claimed(
            f"MQv2-HMAC-SHA1 Credential={credential}, SignedHeaders=x-mq-date-time, "
            f"Signature={digest}"
        )
    )
    assert signed is not None
    assert signed.access_key == "AccessKey"
    assert signed.is_by([b"another", b"SecretKey"])
    assert not signed.is_by([b"another"])
    assert not signed.is_by([])


@given(TEXTS, TEXTS)
def test_what_is_signed_is_recognised_and_nothing_else(secret: str, time: str) -> None:
    signed = read_signature(dict(sign("someone", secret.encode(), "T" + time)))
    assert signed is not None
    assert signed.is_by([secret.encode()])
    assert not signed.is_by([secret.encode() + b"x"])
    assert not signed._replace(content=b"U" + time.encode()).is_by([secret.encode()])


@given(st.text(max_size=60))
def test_garbage_is_refused_in_words(garbage: str) -> None:
    for header in (garbage, f"MQv2-HMAC-SHA1 {garbage}"):
        with pytest.raises(Unauthenticated):
            assert read_signature(claimed(header)) is None


@pytest.mark.parametrize(
    "metadata",
    [
        {"authorization": f"MQv2-HMAC-SHA1 Credential=a, Signature={HEX}"},
        {"authorization": b"MQv2-HMAC-SHA1", "x-mq-date-time": TIME},
        claimed(f"MQv2-HMAC-SHA1 Credential=, Signature={HEX}"),
        claimed(f"MQv2-HMAC-SHA1 Credential=/a, Signature={HEX}"),
        claimed("MQv2-HMAC-SHA1 Credential=a, Signature=xyz"),
        claimed(f"HMAC-SHA1 Credential=a, Signature={HEX}"),
        claimed("MQv2-HMAC-SHA1 Credential=a, Signature=" + "0" * 2_000),
    ],
)
def test_garbled_headers(metadata: dict[str, str | bytes]) -> None:
    with pytest.raises(Unauthenticated):
        read_signature(metadata)


def test_a_call_without_a_signature_claims_nothing() -> None:
    assert read_signature({"x-mq-date-time": TIME}) is None


@given(TEXTS, st.binary(min_size=NONCE_BYTES, max_size=NONCE_BYTES))
def test_sealed_secrets_open_for_their_user_only(secret: str, nonce: bytes) -> None:
    sealed = seal(secret, "someone", OLD, nonce)
    assert unseal(sealed, "someone", OLD) == secret
    assert unseal(sealed, "someone", BOTH) == secret
    assert unseal(sealed, "someone", NEW) is None
    assert unseal(sealed, "another", OLD) is None
    assert len(secret) < 8 or secret not in sealed


@given(st.text(max_size=60))
def test_a_sealed_secret_that_was_changed_does_not_open(garbage: str) -> None:
    assert unseal(garbage, "someone", BOTH) is None


def test_cluster_secrets_are_long_and_at_most_two() -> None:
    for text in ("", "short", "\n".join(("a" * 32, "b" * 32, "c" * 32))):
        with pytest.raises(InvalidArgument):
            ClusterSecrets.parse(text)
    assert "aaaa" not in repr(ClusterSecrets.parse("# ours\n" + "a" * 40 + "\n"))


def test_a_table_knows_who_may_what() -> None:
    nonce = bytes(NONCE_BYTES)
    users = [
        User("admin", is_super=True, sealed=(seal("s" * 20, "admin", NEW, nonce),)),
        User("off", is_enabled=False, sealed=(seal("s" * 20, "off", NEW, nonce),)),
        User("old", sealed=(seal("s" * 20, "old", OLD, nonce),), peers=("CN=old",)),
    ]
    policy = Policy.parse("old", "Topic:t", "Pub", "Allow")
    records = records_of(users, policy)
    table = AccessTable.of(records, NEW)
    need = NEED
    assert table.users["admin"].decide(need, "").is_allowed
    assert "disabled" in str(table.users["off"].decide(need, ""))
    assert table.users["old"].decide(need, "").rule == policy
    assert table.by_peer["CN=old"] is table.users["old"]
    assert (table.unopened, table.users["old"].secrets) == (1, ())
    assert AccessTable.of(records, BOTH).unopened == 0
    assert "ssss" not in repr(table)


def records_of(users: list[User], *policies: Policy) -> Records:
    return Records.of(
        [Record(user.name, encode_user(user)) for user in users],
        [Record(policy.user, encode_policy(policy)) for policy in policies],
    )


def test_what_did_not_change_is_taken_over_and_what_did_is_not() -> None:
    users = [User("a"), User("b")]
    policies = [Policy.parse(name, "Topic:t", "Pub", "Allow") for name in "ab"]
    before = AccessTable.of(records_of(users, *policies), NEW)
    after = AccessTable.of(records_of(users, policies[0]), NEW, before)
    need = NEED
    assert after.users["a"] is before.users["a"]
    assert before.users["b"].decide(need, "").is_allowed
    assert not after.users["b"].decide(need, "").is_allowed
    assert before.version != after.version
    assert after.version == records_of(users[::-1], policies[0]).version
    assert records_of([]).version == ""


def test_a_user_with_a_policy_that_cannot_be_read_has_no_rights() -> None:
    user, policy = User("a"), Policy.parse("a", "*", "All", "Allow")
    good = records_of([user], policy)
    assert AccessTable.of(good, NEW).users["a"].decide(NEED, "").is_allowed
    bad = Records.of(good.users, (*good.policies, Record("a", b'{"decision":"Later"}')))
    ruling = AccessTable.of(bad, NEW).users["a"].decide(NEED, "")
    assert not ruling.is_allowed
    assert "cannot be read" in str(ruling)
    assert AccessTable.of(Records.of([Record("a", b"?")], ()), NEW).unreadable == ("a",)


def test_records_of_users() -> None:
    user = User("a", is_super=True, is_enabled=False, sealed=("x",), peers=("CN=a",))
    assert decode_user(encode_user(user)) == user
    for value in (b"", b"[]", b"{}", b'{"name":"a b","super":true,"enabled":true}', b"\xff"):
        with pytest.raises(UnreadableRecord):
            decode_user(value)
