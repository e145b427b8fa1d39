"""The store: Apache RocketMQ's formats, the engine that keeps them, its threads, and repair."""
