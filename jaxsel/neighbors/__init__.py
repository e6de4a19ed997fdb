"""Who is near: distances, the order by distance, and the nearest few."""

from ._distance import (
    METRICS as METRICS,
)
from ._distance import (
    Metric as Metric,
)
from ._distance import (
    distances as distances,
)
from ._distance import (
    normalise as normalise,
)
from ._distance import (
    prepare as prepare,
)
from ._distance import (
    squared_norms as squared_norms,
)
from ._distance import (
    to_length as to_length,
)
from ._order import (
    SORTS as SORTS,
)
from ._order import (
    Sort as Sort,
)
from ._order import (
    argsort as argsort,
)
from ._order import (
    scatter_index as scatter_index,
)
from ._order import (
    take as take,
)
from ._order import (
    top_k as top_k,
)
from ._order import (
    unsort as unsort,
)
