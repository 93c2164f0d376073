"""The soft affinity for pods that do not carry it: the admission policy, and who lacks it."""
