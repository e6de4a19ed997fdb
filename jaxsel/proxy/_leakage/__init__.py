"""Attacks on a proxy, and what a choice opens."""
