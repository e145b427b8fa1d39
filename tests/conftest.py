"""What all tests share: property tests judge results, not the speed of a busy machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("aerobee", deadline=None, print_blob=True)
settings.load_profile("aerobee")
