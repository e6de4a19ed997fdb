"""What data is worth: KNN semivalues, and the pure kernels under them."""

from ._hybrid import semivalue_hybrid as semivalue_hybrid
from ._knn import (
    knn_banzhaf as knn_banzhaf,
    knn_beta_shapley as knn_beta_shapley,
    knn_loo as knn_loo,
    knn_semivalue as knn_semivalue,
    knn_shapley as knn_shapley,
    soft_knn_shapley as soft_knn_shapley,
)
from ._regression import (
    RegressionTable as RegressionTable,
    knn_regression_shapley as knn_regression_shapley,
    regression_shapley as regression_shapley,
    regression_table as regression_table,
)
from ._semivalue import (
    semivalue as semivalue,
    semivalue_tied as semivalue_tied,
    semivalue_top as semivalue_top,
)
from ._threshold import (
    harmonic_numbers as harmonic_numbers,
    threshold_knn_shapley as threshold_knn_shapley,
    threshold_shapley as threshold_shapley,
)
from ._weights import (
    RankTable as RankTable,
    banzhaf_weights as banzhaf_weights,
    beta_weights as beta_weights,
    loo_weights as loo_weights,
    rank_table as rank_table,
    shapley_weights as shapley_weights,
    size_restricted_weights as size_restricted_weights,
    soft_shapley_offset as soft_shapley_offset,
    soft_shapley_weights as soft_shapley_weights,
)
