"""Backoff for tenacity, which repeats questions to etcd."""

from __future__ import annotations

import random

import tenacity
from tenacity.wait import wait_base

from aerobee.runtime.retry import Backoff


class BackoffWait(wait_base):
    """A Backoff as tenacity's `wait=` argument."""

    def __init__(self, backoff: Backoff, chance: random.Random) -> None:
        self._backoff = backoff
        self._chance = chance

    def __call__(self, retry_state: tenacity.RetryCallState) -> float:
        return self._backoff.delay_s(retry_state.attempt_number, self._chance)
