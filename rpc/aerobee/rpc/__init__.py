"""gRPC at both ends: the protocols in `core/`, and what surrounds each call of a node."""
