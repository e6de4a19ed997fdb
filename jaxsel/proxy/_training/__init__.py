"""From a target to a trained proxy."""
