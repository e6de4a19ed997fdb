"""Applications that judge values on real data, with curves."""

from ._acquisition import acquisition as acquisition
from ._adaptation import domain_adaptation as domain_adaptation
from ._agreement import rank_agreement as rank_agreement
from ._application import (
    RANDOM as RANDOM,
    random_values as random_values,
)
from ._curves import Curves as Curves
from ._detection import Detection as Detection, detection_curve as detection_curve
from ._embedding import train_embedding as train_embedding
from ._lds import lds as lds
from ._learners import (
    retrain_cnn as retrain_cnn,
    retrain_logistic as retrain_logistic,
    retrain_mlp as retrain_mlp,
)
from ._linearity import linearity as linearity
from ._noisy import noisy_labels as noisy_labels
from ._removal import point_addition as point_addition, point_removal as point_removal
from ._removal_effect import removal_effect as removal_effect
from ._subsets import SubsetRuns as SubsetRuns, retrain_subsets as retrain_subsets
from ._summary import summarisation as summarisation
from ._watermarks import (
    instance_watermark_detection as instance_watermark_detection,
    pattern_watermark_detection as pattern_watermark_detection,
)
