"""Who is calling, and what they may do: users, policies, signatures, and one decision.

Pure: no clock, no file, no protocol. Nodes pass in what they receive and carry out the decision.
"""
