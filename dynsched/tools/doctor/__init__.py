"""`dynsched doctor`: whether the rules fit the Prometheus and the cluster.

``checks_*`` are functions from what is known of a rule or of the cluster to findings.
"""
