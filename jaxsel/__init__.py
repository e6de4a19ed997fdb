"""jaxsel: find, value and buy training data."""

from ._mesh import init_multihost as init_multihost
from ._mesh import make_mesh as make_mesh
from ._types import Selection as Selection
from ._types import Values as Values
from ._version import __version__ as __version__
from .value import (
    knn_banzhaf as knn_banzhaf,
)
from .value import (
    knn_beta_shapley as knn_beta_shapley,
)
from .value import (
    knn_loo as knn_loo,
)
from .value import (
    knn_regression_shapley as knn_regression_shapley,
)
from .value import (
    knn_semivalue as knn_semivalue,
)
from .value import (
    knn_shapley as knn_shapley,
)
from .value import (
    soft_knn_shapley as soft_knn_shapley,
)
from .value import (
    threshold_knn_shapley as threshold_knn_shapley,
)
