"""Owners as wholes: values and a purchase from one vector of each."""
