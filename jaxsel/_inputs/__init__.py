"""Inputs of callers as checked arrays."""
