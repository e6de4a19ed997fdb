"""Mycroft on any prepared set of images, by networks or on a target's features."""
