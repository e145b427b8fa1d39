"""The examples of the consumers' documentation run as they stand."""

from __future__ import annotations

import asyncio

import pytest

import aerobee.consumer_client as consumer_client
from tests.support.examples import check_doctests, example_blocks, modules_of, run_async
from tests.support.real_brokers import RealCluster
from tests.support.waiting import PATIENCE_S, until

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
    running = asyncio.create_task(run_async(code, names))
    shown = ""

    def has_shown() -> bool:
        nonlocal shown
        shown += capsys.readouterr().out
        return running.done() or ("body-paid" in shown and "body-refunded" in shown)

    await until(has_shown)
    if "run()" in code:  # Only a consumer that runs until it is stopped goes on.
        assert not running.done()
        running.cancel()
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait((running,))
    if not running.cancelled():
        running.result()
    has_shown()
    assert "body-paid" in shown
    assert "body-refunded" in shown
    (group,) = {"billing", "report"} & set(code.split('"'))

    async def is_committed() -> bool:
        return (await cluster.committed(group)).get(("orders", 1)) == 2

    # What is acknowledged message by message is committed a little later.
    await until(is_committed)


def test_the_consumers_have_examples() -> None:
    names = {where.rpartition(".")[2] for where in BLOCKS}
    assert names >= {"PushConsumer", "PullConsumer"}
