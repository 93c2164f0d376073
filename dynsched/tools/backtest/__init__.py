"""`dynsched backtest` replays rules over Prometheus's history. `gathering` is the entry point."""
