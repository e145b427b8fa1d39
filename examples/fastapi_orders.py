"""A web service that takes orders and sends each of them as a message.

pip install "fastapi[standard]"
fastapi run examples/fastapi_orders.py
curl localhost:8000/orders -H "content-type: application/json" -d '{"id": "17", "plugs": 2}'
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from aerobee import AerobeeError, Message, Producer


class Order(BaseModel):
    id: str
    plugs: int


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One producer for the life of the service, shared by all requests."""
    async with Producer() as producer:
        app.state.producer = producer
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/ready", status_code=204)
async def ready(request: Request) -> None:
    """For a load balancer or Kubernetes: 503 while orders could not be taken, and why."""
    try:
        await request.app.state.producer.ready("web_orders", timeout=2.0)
    except AerobeeError as error:
        raise HTTPException(503, str(error)) from error


@app.post("/orders", status_code=202)
async def take(order: Order, request: Request) -> dict[str, str]:
    """Answers once the message is stored, so that no accepted order is lost."""
    message = Message(
        "web_orders",
        order.model_dump_json().encode(),
        keys=[order.id],
        sharding_key=order.id,  # all messages of an order are in order
    )
    try:
        receipt = await request.app.state.producer.send(message, timeout=5.0)
    except AerobeeError as error:
        if error.retryable:
            raise HTTPException(503, str(error)) from error
        raise
    return {"message_id": receipt.message_id}
