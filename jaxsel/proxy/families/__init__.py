"""Families of emulators."""
