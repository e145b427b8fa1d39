"""`aerobee bench peers`: Kafka, NATS, Redis and grpc-go beside Aerobee, on one machine in one run.

Each system is a server process and a load process, the latter with the system's own fast client:
Java for Kafka, Go for NATS, Redis and gRPC, Python for Aerobee. All loads take the same parts and
return the same answers, one JSON line each. The peers are not dependencies of Aerobee: they are
fetched into the user's cache folder, with the versions and checksums given here.
"""
