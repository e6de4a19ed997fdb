"""Formats and folders of files."""
