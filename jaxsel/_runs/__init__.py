"""Runs that go on: progress, checkpoints, executors."""
