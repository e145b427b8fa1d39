"""A whole cluster on this machine: etcd, nameserver and brokers as supervised child processes."""
