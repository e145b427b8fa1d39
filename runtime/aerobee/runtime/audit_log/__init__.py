"""The audit log: who changed what, and who was refused, in lines chained by hashes.

Not the audit of offsets, which is `aerobee.offset_audit`.
"""
