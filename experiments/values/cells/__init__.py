"""The study's applications on any prepared set of images or texts."""
