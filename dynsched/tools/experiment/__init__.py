"""`dynsched experiment`: what marks and the order changed, from Prometheus's history."""
