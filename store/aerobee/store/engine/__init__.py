"""The storage engine: commit log, consume queues, recovery. Sync code over a Disk; no network, no
tasks.
"""
