"""Consumer groups: members, their queue leases, and what outlives a master's term of them."""
