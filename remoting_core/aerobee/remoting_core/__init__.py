"""Frames, headers and connections of remoting, RocketMQ's older wire protocol.

Knows nothing of messages. Frames and headers are as Apache RocketMQ 4.9 and 5.x write them.
"""
