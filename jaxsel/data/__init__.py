"""Real data sets, the user's own data, and seeded corruptions."""

from jaxsel._files.packages import FetchError as FetchError
from jaxsel._inputs.rows import Rows as Rows

from ._catalog import register as register
from ._convert import (
    from_arrays as from_arrays,
    from_hugging_face as from_hugging_face,
    from_torch as from_torch,
)
from ._corrupt_geometry import (
    crop_and_flip as crop_and_flip,
    perspective as perspective,
)
from ._corrupt_labels import (
    flip_labels as flip_labels,
    permute_labels as permute_labels,
)
from ._corrupt_values import (
    color_jitter as color_jitter,
    gaussian_noise as gaussian_noise,
    mask_patches as mask_patches,
)
from ._dataset import Dataset as Dataset
from ._load import load as load
from ._open_rows import open_rows as open_rows
from ._prepare import (
    available as available,
    info as info,
    prepare as prepare,
    remove as remove,
)
from ._watermark import (
    instance_watermark as instance_watermark,
    pattern_watermark as pattern_watermark,
    text_blend_watermark as text_blend_watermark,
)
