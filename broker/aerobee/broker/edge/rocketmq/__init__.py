"""The broker's side of apache.rocketmq.v2; the service itself is `aerobee.rocketmq_api`."""
