"""Conjugate gradients and TRAK of dattri 0.3, on networks that jaxsel has trained."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ._setups import Data

CHUNK = 5  # targets whose solves are in memory at once
TOLERANCE = 1e-4  # nats, between losses of both libraries

Params = Any
Scores = np.ndarray


class Twins:
    """Networks of jaxsel in torch, and dattri's methods on them.

    Args:
        networks: Parameters: of a perceptron, a list of layers whose last row is the
            bias, or of a convolution `[h, w, in, out]` and a dense layer.
        samples: Samples and targets, in rows.
        losses: Losses of the targets in jaxsel, `[networks, t]`, which torch's must
            equal.

    Raises:
        ValueError: If a network has another loss in torch.
    """

    def __init__(
        self, networks: Sequence[Params], samples: Data, losses: np.ndarray
    ) -> None:
        import torch

        self._model = _model(networks[0])
        self._states = [_state(network) for network in networks]
        x, y, x_val, y_val = (torch.as_tensor(np.array(part)) for part in samples)
        self._train, self._val = (x, y), (x_val, y_val)
        for state, expected in zip(self._states, losses, strict=True):
            self._model.load_state_dict(state)
            with torch.no_grad():
                measured = torch.nn.functional.cross_entropy(
                    self._model(x_val), y_val, reduction="none"
                )
            error = np.abs(measured.numpy() - expected).max()
            if error > TOLERANCE:
                raise ValueError(f"torch's losses differ from jaxsel's by {error:.2g}")

    def conjugate_gradients(self, damping: float, steps: int = 10) -> Scores:
        """Return scores of `IFAttributorCG`, the mean over networks, `[t, n]`."""
        import torch

        attributor = _dattri("algorithm").IFAttributorCG(
            task=self._task(self._loss), max_iter=steps, regularization=damping
        )
        attributor.cache(_loader(self._train))
        with torch.no_grad():
            scores = attributor.attribute(
                _loader(self._train), _loader(self._val, CHUNK)
            )
        return _numbers(scores)

    def trak(self, damping: float, dim: int = 512) -> Scores:
        """Return scores of `TRAKAttributor` with all networks, `[t, n]`."""
        import torch

        def log_odds(params: Any, example: Any) -> Any:
            log = -self._loss(params, [part[None] for part in example])
            return log - torch.log(1 - torch.exp(log) + 1e-12)

        def probability(params: Any, example: Any) -> Any:
            return torch.exp(-self._loss(params, [part[None] for part in example]))

        attributor = _dattri("algorithm").TRAKAttributor(
            task=self._task(log_odds),
            correct_probability_func=probability,
            projector_kwargs={"proj_dim": dim, "device": "cpu"},
            regularization=damping,
        )
        attributor.cache(_loader(self._train, 100))
        with torch.no_grad():
            return _numbers(attributor.attribute(_loader(self._val)))

    def _loss(self, params: Any, examples: Any) -> Any:
        import torch

        x, y = examples
        outputs = torch.func.functional_call(self._model, params, x)
        return torch.nn.functional.cross_entropy(outputs, y)

    def _task(self, loss: Callable[..., Any]) -> Any:
        return _dattri("task").AttributionTask(
            model=self._model, loss_func=loss, checkpoints=self._states
        )


def _dattri(name: str) -> Any:
    return importlib.import_module(f"dattri.{name}")


def _numbers(scores: Any) -> Scores:
    return scores.detach().numpy().T.astype(np.float64)


def _loader(examples: Sequence[Any], size: int | None = None) -> Any:
    from torch.utils.data import DataLoader, TensorDataset

    return DataLoader(TensorDataset(*examples), batch_size=size or len(examples[0]))


def _model(network: Params) -> Any:
    from torch import nn

    if isinstance(network, dict):
        height, _, inputs, filters = np.shape(network["kernel"])
        side = 8
        return nn.Sequential(
            nn.Unflatten(1, (inputs, side, side)),
            nn.Conv2d(inputs, filters, height, padding="same"),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(len(network["out"]) - 1, np.shape(network["out"])[1]),
        )
    layers: list[Any] = []
    for layer in network:
        inputs, outputs = np.shape(layer)
        layers += [nn.Linear(inputs - 1, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _state(network: Params) -> dict[str, Any]:
    """Return the parameters as torch names them."""
    import torch

    def tensor(leaf: Any) -> Any:
        return torch.as_tensor(np.array(leaf))

    def dense(i: int, layer: Any) -> dict[str, Any]:
        layer = np.asarray(layer)
        return {f"{i}.weight": tensor(layer[:-1].T), f"{i}.bias": tensor(layer[-1])}

    if isinstance(network, dict):
        kernel = np.asarray(network["kernel"]).transpose(3, 2, 0, 1)
        convolution = {"1.weight": tensor(kernel), "1.bias": tensor(network["bias"])}
        return convolution | dense(5, network["out"])
    return {
        k: v for i, layer in enumerate(network) for k, v in dense(2 * i, layer).items()
    }
