"""The demo, continued: its purchase closer, requests, values and clients."""
