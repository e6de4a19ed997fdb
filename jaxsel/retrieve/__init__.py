"""What looks like the hard samples: retrieval with coverage, and binning distance."""

from ._binning import (
    MODES as MODES,
    Mode as Mode,
    binning_distance as binning_distance,
    fewest_mismatches as fewest_mismatches,
    retrieve_binned as retrieve_binned,
)
from ._coverage import coverage as coverage
from ._nearest import (
    Nearest as Nearest,
    merge_nearest as merge_nearest,
    nearest as nearest,
    no_nearest as no_nearest,
)
from ._retrieve import pseudo_labels as pseudo_labels, retrieve as retrieve
