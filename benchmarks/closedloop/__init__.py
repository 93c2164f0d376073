"""A closed loop of pods, load, metrics, dynsched and scheduler, in one process and without servers.

Pods come and go; what they really use makes the nodes' load; the load is scraped and averaged as
Prometheus does; dynsched's own `Loop` and `Extender` decide on that; a model of kube-scheduler
places the next pods by it. Nothing of dynsched is written a second time here.
"""
