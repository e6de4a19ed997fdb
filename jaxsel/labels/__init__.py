"""Label errors: detection, ranking, corrections, and noise estimates."""

from ._columns import on_one_scale as on_one_scale
from ._filters import FILTERS as FILTERS, label_issues as label_issues
from ._find import find_label_errors as find_label_errors
from ._folds import cross_val_probs as cross_val_probs, deal_folds as deal_folds
from ._joint import ConfidentJoint as ConfidentJoint, confident_joint as confident_joint
from ._kernels import (
    ConfidentCounts as ConfidentCounts,
    confident_counts as confident_counts,
    label_quality as label_quality,
)
from ._neighbours import (
    Duplicates as Duplicates,
    conflicting_duplicates as conflicting_duplicates,
)
from ._noise import LabelNoise as LabelNoise, estimate_noise as estimate_noise
from ._quality import (
    QUALITIES as QUALITIES,
    fuse_ranks as fuse_ranks,
    label_scores as label_scores,
)
from ._rank import RANKINGS as RANKINGS
from ._result import Confusion as Confusion, LabelErrors as LabelErrors
