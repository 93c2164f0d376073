"""The scheduler extender: kube-scheduler asks, and the last evaluation answers."""
