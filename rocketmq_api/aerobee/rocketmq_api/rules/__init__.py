"""What every protocol of RocketMQ knows, in plain values: nothing here knows protobuf."""
