"""What handlers can ask for by type: `async def handle(body: str, message: AerobeeMessage)`."""

from __future__ import annotations

from typing import Annotated

from faststream import Context
from faststream.annotations import ContextRepo, Logger

from aerobee.integrations.faststream.broker import AerobeeBroker as _Broker
from aerobee.integrations.faststream.message import AerobeeMessage as _Message

__all__ = ["AerobeeBroker", "AerobeeMessage", "ContextRepo", "Logger"]

AerobeeMessage = Annotated[_Message, Context("message")]
AerobeeBroker = Annotated[_Broker, Context("broker")]
