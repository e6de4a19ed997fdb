"""Scenarios of the experiments: trainers, owners, clients, samples, values."""
