"""Accuracy after a purchase by the scores of a linear target itself."""
