"""Proxies of a transformer: fidelity, secure cost, and accuracy after a purchase."""
