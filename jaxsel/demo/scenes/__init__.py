"""Scenarios of the demo and the experiments: trainers, owners, clients, texts."""
