"""RocketMQ's remoting protocol, without any input or output: what its commands and bodies mean."""
