"""The script of components/volume-snapshots, against a server that behaves as the API server does.

The real one would need a storage driver that makes snapshots.
"""

from __future__ import annotations

import json
import runpy
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.kubernetes.rendering import MANIFESTS
from tests.kubernetes.schemas import Schemas, kubernetes_version

SCRIPT = MANIFESTS / "components" / "volume-snapshots" / "snapshots.py"
CLAIM = "data-aerobee-broker-a-2"
PATH = "/apis/snapshot.storage.k8s.io/v1/namespaces/messages/volumesnapshots"
NIGHT = datetime(2026, 11, 26, 2, 7, tzinfo=UTC)


class Driver:
    """The snapshots that there are, and what becomes of new ones."""

    def __init__(self) -> None:
        self.snapshots: dict[str, Any] = {}
        self.pods: list[Any] = []
        self.works = True
        self.looks = 0

    def create(self, document: Any) -> Any:
        self.snapshots[document["metadata"]["name"]] = document
        return document

    def get(self, name: str) -> Any:
        """Ready when it is looked at again."""
        self.looks += 1
        if self.looks > 1:
            told = {"readyToUse": True} if self.works else {"error": {"message": "no such disk"}}
            self.snapshots[name]["status"] = told
        return self.snapshots[name]

    def find(self, selector: str) -> Any:
        label, _, value = selector.partition("=")
        items = [
            one for one in self.snapshots.values() if one["metadata"]["labels"][label] == value
        ]
        return {"items": items}


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def script(driver: Driver, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The script's names; `api` is a client of a server before `driver`."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, document: Any) -> None:
            assert self.headers["Authorization"] == "Bearer secret"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def do_POST(self) -> None:
            assert self.path == PATH
            text = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(driver.create(json.loads(text)))

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path == "/api/v1/namespaces/messages/pods":
                asked = parse_qs(url.query)["labelSelector"][0]
                assert asked == "app.kubernetes.io/name=aerobee,app.kubernetes.io/component=broker"
                self._answer({"items": driver.pods})
            elif url.path == PATH:
                self._answer(driver.find(parse_qs(url.query)["labelSelector"][0]))
            else:
                self._answer(driver.get(url.path.removeprefix(f"{PATH}/")))

        def do_DELETE(self) -> None:
            self._answer(driver.snapshots.pop(self.path.removeprefix(f"{PATH}/")))

        def log_message(self, *_: object) -> None:
            pass

    (tmp_path / "namespace").write_text("messages")
    (tmp_path / "token").write_text("secret\n")
    names = runpy.run_path(str(SCRIPT))
    # A function's globals are a dict of their own there.
    names["take"].__globals__.update(LOOK_EVERY_S=0.01, READY_TIMEOUT_S=0.5)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield {**names, "api": names["Api"](f"http://127.0.0.1:{server.server_port}", tmp_path)}
        server.shutdown()
        thread.join()


def test_a_snapshot_is_made_and_waited_for(driver: Driver, script: dict[str, Any]) -> None:
    name = script["take"](script["api"], CLAIM, NIGHT, "fast")
    assert name == f"{CLAIM}-20261126t020700z"
    made = dict(driver.snapshots[name])
    assert made.pop("status") == {"readyToUse": True}
    Schemas(kubernetes_version()).check(made)
    assert made["spec"]["source"]["persistentVolumeClaimName"] == CLAIM


def test_the_newest_that_are_ready_stay_and_those_of_other_claims(
    driver: Driver, script: dict[str, Any]
) -> None:
    for day in (20, 21, 22, 23, 24):
        name = script["take"](script["api"], CLAIM, NIGHT.replace(day=day))
        driver.looks = 1
    driver.snapshots[name]["status"] = None
    other = script["take"](script["api"], "data-aerobee-broker-b-2", NIGHT)
    gone = script["remove_older"](script["api"], CLAIM, 2)
    # The newest was never ready, so the two before it are those to restore from.
    assert [one[-17:-8] for one in gone] == ["-20261120", "-20261121", "-20261124"]
    assert set(driver.snapshots) == {
        f"{CLAIM}-20261122t020700z",
        f"{CLAIM}-20261123t020700z",
        other,
    }


def test_a_driver_that_fails_says_why_and_nothing_is_removed(
    driver: Driver, script: dict[str, Any]
) -> None:
    driver.works = False
    with pytest.raises(RuntimeError, match="no such disk"):
        script["take"](script["api"], CLAIM, NIGHT)
    assert len(driver.snapshots) == 1


def pod(group: str, number: int, *, ready: bool) -> Any:
    """As the API server tells of it."""
    claim = f"data-aerobee-{group}-{number}"
    return {
        "metadata": {
            "labels": {
                "aerobee.dev/broker-group": group,
                "apps.kubernetes.io/pod-index": f"{number}",
            }
        },
        "spec": {
            "volumes": [
                {"name": "tmp", "emptyDir": {}},
                {"name": "data", "persistentVolumeClaim": {"claimName": claim}},
            ]
        },
        "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


def test_the_last_ready_replica_of_every_group_is_saved_also_of_a_group_that_came_later(
    driver: Driver, script: dict[str, Any]
) -> None:
    """The claims of replicas that are out of sync, or were removed, have not all messages."""
    driver.pods = [pod("broker-a", number, ready=number != 2) for number in (0, 1, 2)]
    driver.pods += [pod("broker-c", number, ready=True) for number in (9, 10)]
    driver.pods += [pod("broker-x", 0, ready=False)]
    assert script["claims_of"](script["api"].brokers()) == {
        "broker-a": "data-aerobee-broker-a-1",
        "broker-c": "data-aerobee-broker-c-10",
        "broker-x": None,
    }


def test_a_group_without_a_ready_replica_fails_the_job_and_the_others_are_saved(
    driver: Driver, script: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    driver.pods = [pod("broker-a", 0, ready=False), pod("broker-b", 1, ready=True)]
    noted: list[list[str]] = []
    names = script["main"].__globals__
    monkeypatch.setitem(names, "Api", lambda: script["api"])
    run = SimpleNamespace(run=lambda words, check: noted.append(words))
    monkeypatch.setitem(names, "subprocess", SimpleNamespace(**vars(subprocess) | vars(run)))
    monkeypatch.setenv("KEEP", "7")
    assert script["main"]() == 1
    assert noted == [["aerobee", "etcd", "note-backup", "broker-b"]]
    assert "broker-a: no replica is ready" in capsys.readouterr().err
    assert len(driver.snapshots) == 1
    driver.pods = []
    assert script["main"]() == 1
