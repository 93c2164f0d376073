"""`dynsched doctor` and `dynsched reach`: whether the rules fit the Prometheus and the cluster.

What is known is gathered first (``ask_prometheus``, ``ask_cluster``: read-only, bounded), as plain
values (``facts``); the checks are pure functions from these to findings (``checks_*``).
docs/doctor.md explains each code to users.
"""
