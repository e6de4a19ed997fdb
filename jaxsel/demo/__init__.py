"""The demo: five owners, a trainer that knows none of them, and a report.

Its module `purchase` is shared with the experiments, and may change.
"""

from ._run import run_demo as run_demo
