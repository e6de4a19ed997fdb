"""The cost of a secure run, counted from a manifest."""
