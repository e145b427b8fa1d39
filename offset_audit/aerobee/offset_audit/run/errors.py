"""Why a run of the audit could not be made; imports neither pyspark nor pyarrow."""

from __future__ import annotations

from aerobee.runtime.errors import MqError


class NotReady(MqError):
    """This machine lacks something that Spark needs; the sentence says what to install."""


class NothingToAudit(MqError):
    """Neither a cluster nor a store was found where the caller said."""


class SparkFailed(MqError):
    """Spark itself did not start or broke down; the sentence ends with its own last words."""
