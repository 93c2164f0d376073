"""`dynsched doctor`: checks whether the rules fit Prometheus and the cluster."""
