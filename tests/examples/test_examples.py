"""Every program of examples/ does what it says, on one cluster that `aerobee up` started."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.docs.test_examples import PATIENCE_S, ROOT, Cluster
from tests.kubernetes.schemas import Schemas, kubernetes_version
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLES = ROOT / "examples"
SPARK_PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = Cluster(tmp_path_factory.mktemp("examples"), "aerobee up --ephemeral")
    try:
        yield running
    finally:
        running.stop()


def run(cluster: Cluster, *words: str, given: str = "", patience_s: float = PATIENCE_S) -> str:
    """The output of a program that ends well, in the cluster's folder."""
    done = subprocess.run(
        words,
        cwd=cluster.folder,
        env=cluster.environment,
        input=given,
        capture_output=True,
        text=True,
        timeout=patience_s,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_example(cluster: Cluster, name: str, *words: str, patience_s: float = PATIENCE_S) -> str:
    return run(cluster, sys.executable, str(EXAMPLES / name), *words, patience_s=patience_s)


def run_code(cluster: Cluster, code: str) -> str:
    """Code that imports an example."""
    return run(
        cluster, sys.executable, "-c", f"import sys; sys.path.insert(0, {str(EXAMPLES)!r})\n{code}"
    )


def consumed(cluster: Cluster, topic: str, count: int) -> list[str]:
    words = ("aerobee", "consume", topic, "--group", f"test-{topic}", "--count", str(count))
    return run(cluster, *words).splitlines()


def test_the_list_of_examples_has_each_of_them() -> None:
    text = (EXAMPLES / "README.md").read_text("utf-8")
    programs = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".sh")}
    assert len(programs) == 9
    assert [name for name in programs if f"({name})" not in text] == []


def test_a_web_service_answers_once_its_order_is_stored(cluster: Cluster) -> None:
    said = run_code(
        cluster,
        """
from fastapi.testclient import TestClient
from fastapi_orders import app
with TestClient(app) as client:
    answer = client.post("/orders", json={"id": "17", "plugs": 2})
    print(answer.status_code, len(answer.json()["message_id"]))
    print(client.post("/orders", json={"id": "18"}).status_code)
    print(client.get("/ready").status_code)
""",
    )
    assert said.split() == ["202", "32", "422", "204"]
    assert [json.loads(line) for line in consumed(cluster, "web_orders", 1)] == [
        {"id": "17", "plugs": 2}
    ]


def test_a_worker_tries_again_gives_up_and_ends_when_it_is_told(cluster: Cluster) -> None:
    configure = "group configure packing --retries-max 2 --back-off exponential --initial 200ms"
    run(cluster, "aerobee", *configure.split())
    log = cluster.folder / "worker.out"
    with log.open("w") as output:
        worker = subprocess.Popen(
            [sys.executable, str(EXAMPLES / "worker.py")],
            cwd=cluster.folder,
            env=cluster.environment,
            stdout=output,
        )
    try:
        orders = '{"id": "1", "plugs": 0}\n{"id": "2", "plugs": 3}\n'
        run(cluster, "aerobee", "produce", "parcels_to_pack", given=orders)
        wait_until(
            lambda: "no plugs" in cluster.try_command("aerobee dead-letter list packing --wide"),
        )
        wait_until(lambda: "packed order 2, attempt 1" in log.read_text())
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
    finally:
        worker.kill()
        worker.wait()
    assert log.read_text().splitlines() == ["packed order 2, attempt 1", "stopped"]


def test_tasks_of_taskiq_are_run_by_workers_or_refused(cluster: Cluster) -> None:
    log = cluster.folder / "taskiq.out"
    with log.open("w") as output:
        workers = subprocess.Popen(
            [sys.executable, "-m", "taskiq", "worker", "--workers", "2", "taskiq_mails:broker"],
            cwd=EXAMPLES,
            env=cluster.environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        addresses = [f"{name}@example.com" for name in ("ada", "bob", "eve", "joe")]
        said = run_example(cluster, "taskiq_mails.py", *addresses, "nobody")
        assert said == "5 mails are stored\n"
        wait_until(
            lambda: all(f"sent to {address}" in log.read_text() for address in addresses),
        )
        wait_until(
            lambda: "no address" in cluster.try_command("aerobee dead-letter list mailers --wide")
        )
        workers.send_signal(signal.SIGTERM)
        assert workers.wait(PATIENCE_S) == 0
    finally:
        workers.kill()
        workers.wait()
    assert log.read_text().count("sent to ") == len(addresses)


def test_a_service_of_faststream_bills_orders(cluster: Cluster) -> None:
    service = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "faststream_bills.py")],
        cwd=cluster.folder,
        env=cluster.environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        orders = '{"id": 16, "plugs": 0}\n{"id": 17, "plugs": 2}\n'
        run(cluster, "aerobee", "produce", "orders_to_bill", given=orders)
        wait_until(lambda: "bills" in cluster.try_command("aerobee topic list"))
        assert [json.loads(line) for line in consumed(cluster, "bills", 1)] == [
            {"order": 17, "euros": 6}
        ]
        wait_until(
            lambda: (
                "no plugs" in cluster.try_command("aerobee dead-letter list billing_service --wide")
            )
        )
        service.send_signal(signal.SIGTERM)
        assert service.wait(PATIENCE_S) == 0
    finally:
        service.kill()
        service.wait()


def test_a_saga_pays_or_cancels_each_order_that_was_placed(cluster: Cluster) -> None:
    assert run_example(cluster, "order_saga.py").splitlines() == [
        "o-1 a second time: refused, and nobody hears of it",
        "o-1: paid",
        "o-2: cancelled",
    ]


def test_a_reminder_arrives_when_it_is_due(cluster: Cluster) -> None:
    said = run_example(cluster, "reminders.py", "1", "tea is ready").splitlines()
    assert said[0].startswith("to call it off: aerobee schedule recall ")
    assert said[1:] == ["in time: tea is ready"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_spark_job_counts_each_sale_once_over_its_runs(cluster: Cluster, tmp_path: Path) -> None:
    sales = [{"country": "fr", "price": 3}, {"country": "de", "price": 5}]
    lines = "".join(json.dumps(sale) + "\n" for sale in sales)
    run(cluster, "aerobee", "produce", "sales", given=lines)
    first = run_example(cluster, "spark_totals.py", str(tmp_path), patience_s=SPARK_PATIENCE_S)
    assert first.splitlines() == ["de 5", "fr 3"]
    run(cluster, "aerobee", "produce", "sales", given='{"country": "fr", "price": 4}\n')
    again = run_example(cluster, "spark_totals.py", str(tmp_path), patience_s=SPARK_PATIENCE_S)
    assert again.splitlines() == ["de 5", "fr 7"]


def test_a_django_view_sends_what_its_transaction_committed_and_nothing_else(
    cluster: Cluster,
) -> None:
    said = run_code(
        cluster,
        """
import django_shop
from django.test import Client
client = Client(raise_request_exception=False)
for item in ("plug", "socket"):
    answer = client.post("/buy", {"id": "b-1", "item": item}, content_type="application/json")
    print(answer.status_code)
""",
    )
    assert said.split() == ["201", "409"], "the second one has the same id"
    run(cluster, "aerobee", "produce", "shop_purchases", given="last\n")
    assert sorted(consumed(cluster, "shop_purchases", 2)) == [
        "last",
        '{"id": "b-1", "item": "plug"}',
    ]


def test_a_pipeline_of_commands_filters_and_forwards(cluster: Cluster) -> None:
    said = run(cluster, "sh", str(EXAMPLES / "pipeline.sh"))
    assert said.splitlines()[-2:] == ["kitchen 31", "kitchen 35"]


def test_a_job_of_the_night_commits_what_it_has_counted(cluster: Cluster) -> None:
    payments = '{"shop": "north", "amount": 3}\n{"shop": "north", "amount": 4}\n'
    run(cluster, "aerobee", "produce", "payments_made", given=payments)
    assert run_example(cluster, "kubernetes/report.py") == "north 7\n"
    groups = json.loads(run(cluster, "aerobee", "group", "list", "--json"))
    assert [each["lag"] for each in groups if each["group"] == "nightly-report"] == [0]


def test_the_manifest_of_the_job_is_valid_and_runs_its_program() -> None:
    folder = EXAMPLES / "kubernetes"
    job = yaml.safe_load((folder / "job.yaml").read_text("utf-8"))
    Schemas(kubernetes_version()).check(job)
    (generated,) = yaml.safe_load((folder / "kustomization.yaml").read_text())["configMapGenerator"]
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["volumes"][0]["configMap"]["name"] == generated["name"]
    assert pod["containers"][0]["command"][-1] == f"/program/{generated['files'][0]}"
    assert (folder / generated["files"][0]).is_file()
