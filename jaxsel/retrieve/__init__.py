"""Retrieval of candidates similar to the hard samples: coverage or binning distance."""

from ._binning import (
    binning_distance as binning_distance,
    retrieve_binned as retrieve_binned,
)
from ._coordinates import target_coordinates as target_coordinates
from ._coverage import coverage as coverage
from ._duplicates import duplicates as duplicates
from ._finetuning import select_for_finetuning as select_for_finetuning
from ._near_duplicates import NearDuplicates as NearDuplicates
from ._nearest import (
    empty_nearest as empty_nearest,
    merge_nearest as merge_nearest,
    nearest as nearest,
)
from ._registry import RETRIEVERS as RETRIEVERS
from ._retrieve import (
    pseudo_labels as pseudo_labels,
    retrieve_nearest as retrieve_nearest,
)
from ._targeted import retrieve_targeted as retrieve_targeted
