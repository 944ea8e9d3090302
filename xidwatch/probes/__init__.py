"""One module per source of facts, each run by a worker process that may be lost at any time. Probes decide nothing."""
