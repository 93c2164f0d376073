"""`dynsched doctor`: whether the rules fit the Prometheus and the cluster."""
