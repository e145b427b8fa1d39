"""The examples of the consumers' documentation run as they stand."""

from __future__ import annotations

import asyncio

import pytest

import aerobee.consumer_client as consumer_client
from tests.support.examples import check_doctests, example_blocks, modules_of, run_async
from tests.support.real_brokers import RealCluster
from tests.support.waiting import PATIENCE_S

BLOCKS = dict(example_blocks("aerobee.consumer_client"))


def test_small_examples_hold() -> None:
    for module in modules_of("aerobee.consumer_client"):
        check_doctests(module)


@pytest.mark.parametrize("where", BLOCKS)
async def test_an_example_runs_and_handles_what_it_subscribes(
    where: str,
    cluster: RealCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AEROBEE_NAMESERVER", cluster.address)
    for tag in ("paid", "refunded"):
        await cluster.send("orders", 1, [f"body-{tag}".encode()], tag=tag)
    code = BLOCKS[where]
    names = {**vars(consumer_client)}
    names["Sequence"] = __import__("collections.abc").abc.Sequence
    runs_until_stopped = "run()" in code
    try:
        async with asyncio.timeout(1.5 if runs_until_stopped else PATIENCE_S):
            await run_async(code, names)
    except TimeoutError:
        assert runs_until_stopped, "only a consumer that runs until it is stopped may go on"
    shown = capsys.readouterr().out
    assert "body-paid" in shown
    assert "body-refunded" in shown
    (group,) = {"billing", "report"} & set(code.split('"'))
    assert (await cluster.committed(group))["orders", 1] == 2


def test_the_consumers_have_examples() -> None:
    names = {where.rpartition(".")[2] for where in BLOCKS}
    assert names >= {"PushConsumer", "PullConsumer"}
