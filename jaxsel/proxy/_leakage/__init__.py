"""Attacks on a proxy, before and after a choice, and warnings."""
