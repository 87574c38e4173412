"""Why Workloads wait: one module per cause, each from objects, and in one order of precedence."""
