"""The chapters beside the demo: requests, values and clients in one short report."""
