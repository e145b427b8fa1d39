"""Whatever is logged at whatever level, no line has a secret, a key, a signature or a body."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from aerobee.access.credentials import CLUSTER_SECRET_VARIABLE, FILE_VARIABLE, KeyPair
from aerobee.client_core import Message, TlsConfig, user_credentials
from aerobee.producer_client import BlockingProducer
from tests.support.local_up import Up, received, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

GIVEN = "given-secret-of-the-shop"
ROTATED = "rotated-secret-of-the-shop"
WRONG = "wrong-secret-of-a-stranger"
TOO_SHORT = "too-short-cluster-secret"
BODY, KEY, PROPERTY = "body-for-nobody-else", "key-for-nobody-else", "property-for-nobody-else"
NO_KEY = "what-was-put-in-place-of-a-private-key"


@pytest.fixture
def up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Up]:
    monkeypatch.setenv("AEROBEE_LOG_LEVEL", "debug")
    with running(tmp_path, "--access", "--tls", "--replicas", "2") as up:
        up.environment[CLUSTER_SECRET_VARIABLE] = str(up.data / "access" / "cluster-secret")
        yield up


@pytest.mark.thorough
def test_no_line_at_any_level_has_a_secret(
    up: Up, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    said: list[str] = []

    def run(*words: str, given: str = "", fails: bool = False) -> None:
        done = up.run(*words, given=given, expect=range(1, 5) if fails else 0)
        said.append(done.stdout + done.stderr)

    secret_file, keys, new_keys = (tmp_path / name for name in ("secret", "keys", "new-keys"))
    secret_file.write_text(GIVEN)
    run("topic", "create", "orders")
    run(
        "user", "create", "shop", "--secret-file", str(secret_file), "--credentials-file", str(keys)
    )
    run("acl", "add", "shop", "Topic:orders", "Pub,Sub")
    run("acl", "add", "shop", "Group:*", "Sub")
    secret_file.write_text(ROTATED)
    rotated = ("--secret-file", str(secret_file), "--credentials-file", str(new_keys))
    run("user", "rotate", "shop", *rotated)
    run("user", "list")

    # As programs do, and as those that do it wrong.
    ca = TlsConfig(ca=str(up.data / "tls" / "ca.crt"))
    nameserver = up.document()["nameserver"]
    for secret in (GIVEN, ROTATED, WRONG):
        with (
            contextlib.suppress(Exception),
            BlockingProducer(
                nameserver, credentials=user_credentials("shop", secret), tls=ca
            ) as producer,
        ):
            properties = {"note": PROPERTY}
            producer.send(Message("orders", BODY.encode(), keys=(KEY,), properties=properties))
    with_keys = {**up.environment, FILE_VARIABLE: str(keys)}
    del with_keys[CLUSTER_SECRET_VARIABLE]
    operator, up.environment = up.environment, with_keys
    assert len(received(up, "orders", "readers", 2, "--from", "first")) == 2
    run("produce", "orders", "--key", KEY, "--property", "TRAN_MSG=true", given=BODY, fails=True)
    run("produce", "hidden", given=BODY, fails=True)
    keys.write_text(f"access_key = shop\n{WRONG}\n")
    run("topic", "list", fails=True)
    up.environment = operator
    signature = signed_badly(up, ca)

    # Files that hold something else.
    logs = up.data / "logs"
    with instead(up.data / "access" / "cluster-secret", TOO_SHORT):
        wait_until(lambda: logged(logs, "at least 32 characters"), "the short secret to be noticed")
    with instead(up.data / "tls" / "node.key", NO_KEY):
        wait_until(lambda: logged(logs, "TLS files cannot be used"), "the key to be noticed")

    own = (up.data / "access" / "cluster-secret").read_text().split()
    private = [
        line
        for file in (up.data / "tls").glob("*.key")
        for line in file.read_text().splitlines()
        if not line.startswith("-----")
    ]
    assert own
    assert private
    files = [*logs.iterdir(), *(up.data / "audit-log").iterdir()]
    texts = [path.read_text(errors="replace") for path in files]
    assert any("CreateUser" in text and '"hash"' in text for text in texts)
    assert any("DEBUG" in text and "call refused" in text for text in texts)
    for text in (*texts, *said, up.said(), caplog.text):
        for secret in (
            *(GIVEN, ROTATED, WRONG, TOO_SHORT, BODY, KEY, PROPERTY, NO_KEY, signature),
            *(*own, *private),
        ):
            assert secret not in text
        assert "Signature=" not in text
        # The audit log's place is a hash that tells nothing of what it is of.
        text = re.sub(r"place=\S+", "place=", text)
        assert not re.search(r"\w+:\S+ \d{13} [0-9a-f]{16} \d+ [0-9a-f]{64}", text), (
            "a node's proof"
        )


def signed_badly(up: Up, ca: TlsConfig) -> str:
    """A good signature at a place where it is no use, and one that is cut; the digest."""
    path = "/aerobee.v1.NameserverService/ListTopics"
    metadata = user_credentials("shop", ROTATED).metadata(path)
    (signed,) = [str(value) for key, value in metadata if key == "authorization"]
    digest = signed.rpartition("=")[2]
    assert len(digest) == 40
    authority = grpc.ssl_channel_credentials(Path(str(ca.ca)).read_bytes())
    with grpc.secure_channel(up.document()["nameserver"], authority) as channel:
        call: Callable[..., bytes] = channel.unary_unary(path)
        for garbled in (metadata, [(key, str(value)[:-3]) for key, value in metadata]):
            with pytest.raises(grpc.RpcError):
                call(b"", metadata=garbled, timeout=20)
    return digest


@contextlib.contextmanager
def instead(file: Path, text: str) -> Iterator[None]:
    """Another content for a while."""
    before = file.read_bytes()
    file.write_text(text)
    try:
        yield
    finally:
        file.write_bytes(before)


def logged(logs: Path, pattern: str) -> bool:
    return any(re.search(pattern, path.read_text(errors="replace")) for path in logs.iterdir())


def test_what_holds_secrets_shows_none() -> None:
    pair = KeyPair("shop", GIVEN.encode())
    for shown in (repr(pair), str(pair), f"{pair}", repr(user_credentials("shop", GIVEN))):
        assert GIVEN not in shown
