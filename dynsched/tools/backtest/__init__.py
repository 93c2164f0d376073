"""`dynsched backtest`: rules replayed over Prometheus's history; `compute` is the whole of it."""
