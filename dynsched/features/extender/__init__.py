"""The scheduler extender: answers kube-scheduler from the last evaluation."""
