"""What is decided. Pure: no I/O, no clock, no asyncio, no logging; `now` is always an argument.

Begin with `decide`: it calls the rooms in their order. A room imports those before it alone.

- ``nodes``: which node a sample is of, whether it may be marked, how the mark stands on it.
- ``alerting``: from readings to alerts as Prometheus has them, to marks, to patches.
- ``load``: what a metric will show once it has caught up with the pods: the expected load.
- ``placing``: by which new pods go: scores for the extender, the order, and what came of it.

What all share stands beside them: values (`model`, `columns`, `loads`, `pod_values`), the result of
a tick (`snapshot`, `health`), and words.
"""
