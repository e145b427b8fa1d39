"""Where requests come in: gRPC's messages become the domain's words, and back."""
