"""What data is worth: KNN semivalues, and the pure kernels under them."""

from ._hybrid import semivalue_hybrid as semivalue_hybrid
from ._knn import (
    knn_banzhaf as knn_banzhaf,
)
from ._knn import (
    knn_beta_shapley as knn_beta_shapley,
)
from ._knn import (
    knn_loo as knn_loo,
)
from ._knn import (
    knn_regression_shapley as knn_regression_shapley,
)
from ._knn import (
    knn_semivalue as knn_semivalue,
)
from ._knn import (
    knn_shapley as knn_shapley,
)
from ._knn import (
    soft_knn_shapley as soft_knn_shapley,
)
from ._knn import (
    threshold_knn_shapley as threshold_knn_shapley,
)
from ._regression import (
    RegressionTable as RegressionTable,
)
from ._regression import (
    regression_shapley as regression_shapley,
)
from ._regression import (
    regression_table as regression_table,
)
from ._semivalue import (
    semivalue as semivalue,
)
from ._semivalue import (
    semivalue_tied as semivalue_tied,
)
from ._semivalue import (
    semivalue_top as semivalue_top,
)
from ._threshold import (
    harmonic_numbers as harmonic_numbers,
)
from ._threshold import (
    threshold_shapley as threshold_shapley,
)
from ._weights import (
    RankTable as RankTable,
)
from ._weights import (
    banzhaf_weights as banzhaf_weights,
)
from ._weights import (
    beta_weights as beta_weights,
)
from ._weights import (
    loo_weights as loo_weights,
)
from ._weights import (
    rank_table as rank_table,
)
from ._weights import (
    shapley_weights as shapley_weights,
)
from ._weights import (
    size_restricted_weights as size_restricted_weights,
)
from ._weights import (
    soft_shapley_offset as soft_shapley_offset,
)
from ._weights import (
    soft_shapley_weights as soft_shapley_weights,
)
