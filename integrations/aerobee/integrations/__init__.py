"""Aerobee below frameworks that bring a way of writing workers of their own.

Each module needs its framework, and only that: `aerobee.integrations.taskiq` the extra `taskiq`,
`aerobee.integrations.faststream` the extra `faststream`.
"""
