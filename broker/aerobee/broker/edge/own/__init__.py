"""The gRPC servicers: translate, delegate, nothing else."""
