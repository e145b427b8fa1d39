"""A Django view that sends a message once its database transaction has committed.

    pip install django
    python examples/django_shop.py migrate && python examples/django_shop.py runserver

The producer belongs to a process: each worker of the server opens its own, at its first request.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from functools import cache

import django
from django.conf import settings

from aerobee import BlockingProducer, Message

settings.configure(
    ROOT_URLCONF=__name__,
    SECRET_KEY="an example's",
    ALLOWED_HOSTS=["*"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ.get("SHOP_DATABASE", "shop.db"),
        }
    },
)
django.setup()

from django.db import IntegrityError, connection, transaction  # noqa: E402
from django.http import HttpRequest, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402
from django.views.decorators.csrf import csrf_exempt  # noqa: E402


@cache
def producer_of(process: int) -> BlockingProducer:
    producer = BlockingProducer()
    producer.start()
    atexit.register(producer.close)
    return producer


def store(order: dict[str, str]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("create table if not exists purchase (id text primary key, item text)")
        cursor.execute("insert into purchase values (%s, %s)", [order["id"], order["item"]])


@csrf_exempt
def buy(request: HttpRequest) -> JsonResponse:
    order = json.loads(request.body)
    message = Message("shop_purchases", json.dumps(order).encode(), keys=[order["id"]])
    try:
        with transaction.atomic():
            store(order)
            # A process that dies right here has the order and no message. If you cannot accept
            # that, send within a transaction of the producer, as examples/order_saga.py does.
            transaction.on_commit(lambda: producer_of(os.getpid()).send(message))
    except IntegrityError:
        return JsonResponse({"error": f"{order['id']} is bought already"}, status=409)
    return JsonResponse({"bought": order["id"]}, status=201)


urlpatterns = [path("buy", buy)]


if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
