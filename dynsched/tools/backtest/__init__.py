"""`dynsched backtest`: rules replayed over Prometheus's history; `gathering` is the whole of it."""
