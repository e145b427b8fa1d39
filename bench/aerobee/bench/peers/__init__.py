"""`aerobee bench peers`: Kafka, NATS, Redis and grpc-go beside Aerobee, on one machine in one run.

Each system is a server process and a load process, the latter with the system's own fast client:
Java for Kafka, Go for NATS, Redis and gRPC, Python for Aerobee. All loads take the same parts and
give the same answers, one JSON line each. Nothing of the peers is a dependency of Aerobee: they are
fetched into the user's cache folder, in the versions and with the checksums that are named here.
"""
