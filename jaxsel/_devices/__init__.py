"""Devices, their memory, and JAX with types."""
