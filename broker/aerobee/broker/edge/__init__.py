"""Where requests come in: translates between gRPC messages and the domain's terms."""
