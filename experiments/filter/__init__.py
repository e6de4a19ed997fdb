"""Filtering by loss across clients that learn together."""
