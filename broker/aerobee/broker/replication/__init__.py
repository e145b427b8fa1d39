"""A replica set's replicas: the pure decisions here, the streams in aerobee.broker.edge.own."""
