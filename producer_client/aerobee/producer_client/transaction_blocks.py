"""Blocks that are transactions, of one message or of several.

Owns: which transactions' blocks are running, so that no check is answered meanwhile; and that what
leaves a block ends its transaction.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

from aerobee.client_core.message import Message
from aerobee.cluster_view.route import MessageQueue
from aerobee.producer_client.several import BeginOne, TransactionOfSeveral
from aerobee.producer_client.transactions import Transaction
from aerobee.runtime import errors
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)


class TransactionBlocks:
    """Of one producer."""

    def __init__(
        self,
        begin: BeginOne,
        *,
        do_later: Callable[[Coroutine[None, None, None], str], None],
        is_closing: Callable[[], bool],
    ) -> None:
        """`do_later` runs something in the background, under a name."""
        self._begin = begin
        self._do_later = do_later
        self._is_closing = is_closing
        self._under_way: set[str] = set()

    def is_under_way(self, transaction_id: str) -> bool:
        """Whether its block is running."""
        return transaction_id in self._under_way

    @asynccontextmanager
    async def one(
        self,
        message: Message,
        queue: MessageQueue | None,
        timeout: float | None,
        check_after_s: int | None,
    ) -> AsyncIterator[Transaction]:
        """See `Producer.transaction`."""
        transaction = await self._begin(
            message, queue=queue, timeout=timeout, check_after_s=check_after_s, lead=None
        )
        self._under_way.add(transaction.transaction_id)
        try:
            yield transaction
        except Exception:
            if not transaction.is_end_wanted:
                await _roll_back(transaction, timeout)
            raise
        except BaseException:
            # A cancelled caller does not wait for a broker.
            if not transaction.is_end_wanted and not self._is_closing():
                self._do_later(_roll_back(transaction, timeout), "send:rollback")
            raise
        else:
            if not transaction.is_end_wanted:
                await transaction.commit(timeout=timeout)
        finally:
            self._under_way.discard(transaction.transaction_id)

    @asynccontextmanager
    async def several(
        self, timeout: float | None, check_after_s: int | None
    ) -> AsyncIterator[TransactionOfSeveral]:
        """See `Producer.transaction`."""
        several = TransactionOfSeveral(
            self._begin,
            timeout=timeout,
            check_after_s=check_after_s,
            on_begun=self._under_way.add,
        )
        try:
            yield several
        except Exception:
            await several.roll_back()
            raise
        except BaseException:
            if not self._is_closing():
                self._do_later(several.roll_back(), "send:rollback")
            raise
        else:
            await several.commit()
        finally:
            self._under_way -= {each.transaction_id for each in several.transactions}


async def _roll_back(transaction: Transaction, timeout: float | None) -> None:
    try:
        await transaction.rollback(timeout=timeout)
    except errors.AerobeeError as error:
        log_event(
            log,
            "a transaction is not rolled back: a check decides",
            level=logging.WARNING,
            transaction=transaction.transaction_id,
            topic=transaction.topic,
            reason=error,
        )
