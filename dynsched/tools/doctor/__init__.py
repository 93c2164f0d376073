"""`dynsched doctor` and `dynsched reach`: whether the rules fit the Prometheus and the cluster.

``checks_*`` are functions from what is known of a rule or of the cluster to findings. They ask
through ``ask_prometheus`` and ``ask_cluster``, which read only, and within bounds.
"""
