"""A Spark job that keeps the sum of all sales by country: each message counts once.

    pip install '.[audit]'      # in the checkout; and Java 17
    python examples/spark_totals.py FOLDER

It reads what is there and ends; it continues from the checkpoint in FOLDER the next time. Without
`availableNow` it would run until it is stopped.
"""

from __future__ import annotations

import os
import sys

from pyspark.sql.functions import col, from_json
from pyspark.sql.functions import sum as total

from aerobee.offset_audit.run.session import audit_session


def run(folder: str) -> None:
    with audit_session("local[1]") as spark:
        sales = (
            spark.readStream.format("aerobee.messages")
            .option("nameservers", os.environ.get("AEROBEE_NAMESERVER", "127.0.0.1:8081"))
            .option("subscribe", "sales")
            .option("startingOffsets", "earliest")
            .load()
            .select(
                from_json(col("body").cast("string"), "country string, price int").alias("sale")
            )
        )
        query = (
            sales.select("sale.country", "sale.price")
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start(f"{folder}/sales")
        )
        query.awaitTermination()
        stored = spark.read.parquet(f"{folder}/sales")
        for row in stored.groupBy("country").agg(total("price")).orderBy("country").collect():
            print(*row)


if __name__ == "__main__":
    run(sys.argv[1])
