"""Filtering on any prepared set of images, with other sets as noise."""
