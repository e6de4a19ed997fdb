"""Loss thresholds that keep the samples a benchmark model fits, across clients too."""

from ._baselines import (
    mixture_threshold as mixture_threshold,
    quantile_threshold as quantile_threshold,
)
from ._classes import class_thresholds as class_thresholds
from ._cross_fit import cross_fitted_losses as cross_fitted_losses
from ._federated import (
    federated_threshold as federated_threshold,
    secure_sum as secure_sum,
)
from ._kernel import ks_threshold as ks_threshold
from ._messages import (
    Counted as Counted,
    Question as Question,
    Verdict as Verdict,
    count_losses as count_losses,
)
from ._open_sum import open_sum as open_sum
from ._sample_losses import sample_losses as sample_losses
from ._secure import SecureClient as SecureClient
from ._secure_messages import Keys as Keys, Revealed as Revealed, Shares as Shares
from ._server import filter_server as filter_server
from ._streamed_losses import streamed_losses as streamed_losses
from ._threshold import (
    LossThreshold as LossThreshold,
    loss_threshold as loss_threshold,
)
