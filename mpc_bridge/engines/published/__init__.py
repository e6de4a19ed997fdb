"""No secret at all: the data owner runs a published proxy in the clear."""

from ._engine import PublishedEngine as PublishedEngine
