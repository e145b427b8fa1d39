"""Open transactions by age, and those that were set aside: checked, committed, or rolled back."""

from __future__ import annotations

from starlette.responses import Response

from aerobee.console.listing import ROWS_PER_PAGE
from aerobee.console.visit import Visit
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import InvalidArgument


async def all_open(visit: Visit) -> Response:
    """Oldest first."""
    topic = visit.query.get("topic", "").strip()
    is_aside = visit.query.get("aside") == "1"
    found = await visit.admin.transactions.list(
        topic, set_aside=is_aside, max_transactions=ROWS_PER_PAGE
    )
    now_ms = SystemClock().now_ms()
    return visit.render(
        "transactions.html", found=found, topic=topic, is_aside=is_aside, now_ms=now_ms
    )


async def end(visit: Visit) -> Response:
    form = await visit.form()
    act, topic, transaction_id = form["act"], form["topic"], form["id"]
    if act == "check":
        return await _check(visit, topic, transaction_id)
    if act not in ("commit", "rollback") or form["confirm"] != act:
        raise InvalidArgument("nothing was changed: to confirm, type commit or rollback")
    if act == "commit":
        await visit.admin.transactions.commit(topic, transaction_id)
        done = "is committed: its message is delivered"
    else:
        await visit.admin.transactions.rollback(topic, transaction_id)
        done = "is rolled back: its message is never delivered"
    visit.changed(f"transaction: {act}", topic, transaction=transaction_id)
    text = f"Transaction {transaction_id} of {topic} {done}."
    return visit.render("done.html", text=text, back="/transactions")


async def _check(visit: Visit, topic: str, transaction_id: str) -> Response:
    """Has a producer asked, whose answer comes to the broker later."""
    is_asked = await visit.admin.transactions.check(topic, transaction_id)
    visit.changed("transaction: check", topic, transaction=transaction_id, asked=is_asked)
    text = (
        f"A producer of {topic} is asked about transaction {transaction_id} now: once it answers, "
        "the transaction is gone from the list."
        if is_asked
        else f"Nobody was asked: no producer of {topic} is connected that knows transaction "
        f"{transaction_id}."
    )
    return visit.render("done.html", text=text, back="/transactions")
