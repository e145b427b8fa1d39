"""The audit log: who changed what, and who was refused, in lines that hold each other.

Not the audit of offsets, which is `aerobee.offset_audit`.
"""
