"""The demo: five owners, a trainer that knows none of them, and a report.

Its other modules, `texts`, `words` and `seeds`, are shared with the experiments of the
repository, and may change at any time.
"""

from ._run import run_demo as run_demo
