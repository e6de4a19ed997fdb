"""Label errors: detection, ranking, corrections, and noise estimates."""

from ._filters import FILTERS as FILTERS, label_issues as label_issues
from ._find import find_label_errors as find_label_errors
from ._folds import cross_val_probs as cross_val_probs
from ._joint import confident_joint as confident_joint
from ._neighbours import conflicting_duplicates as conflicting_duplicates
from ._noise import estimate_noise as estimate_noise
from ._quality import label_scores as label_scores
from ._rank import RANKINGS as RANKINGS
from ._result import LabelErrors as LabelErrors
