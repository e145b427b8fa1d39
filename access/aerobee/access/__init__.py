"""Who calls, and what they may do: users, policies, signatures, and one decision.

Pure: no clock, no file, no protocol. Nodes hand over what they hear and do what is decided.
"""
