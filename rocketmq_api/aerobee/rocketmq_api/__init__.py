"""Apache RocketMQ 5's gRPC API, apache.rocketmq.v2, at the edge of brokers and nameservers.

sending/     messages on their way from a client to a record
receiving/   records on their way to a client, and what it may do with a message that it has
clients/     what clients are told about themselves
routes/      where queues are
services/    the calls, as every node serves them
"""
