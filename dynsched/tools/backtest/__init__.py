"""`dynsched backtest`: rules replayed over Prometheus's history. Nothing here writes to a cluster.

``steps`` which moments are evaluated, and how the history is fetched in parts; ``fetching`` the
parts from Prometheus, kept on disk; ``columns`` from series to one value for each step and node;
``world`` the nodes; ``alerts`` and ``choice`` the core's ``evaluate`` and ``select`` for all nodes
at once (numpy), which a property test holds equal to the core; ``engine`` a whole replay;
``tallies`` what it came to; ``regret`` where pods were placed; ``suggest`` and ``weighing`` other
thresholds; ``report`` the result as JSON; ``show``, ``markdown`` and ``html`` that for people.
"""
