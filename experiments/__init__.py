"""The papers' experiments in miniature: `python -m experiments --help`.

One folder a paper, and `tour` without one; `_kit` is shared. They run from a
checkout, and are not part of an installed jaxsel.
"""
