"""`python -m jaxsel`, the same as `jaxsel`."""

import sys

from .cli import main

sys.exit(main())
