"""What the applications refuse."""

import jax
import numpy as np
import pytest

from jaxsel.tasks._acquisition import acquisition
from jaxsel.tasks._adaptation import domain_adaptation
from jaxsel.tasks._noisy import noisy_labels
from jaxsel.tasks._removal import point_addition, point_removal
from jaxsel.tasks._summary import summarisation
from jaxsel.tasks._watermarks import (
    instance_watermark_detection,
    pattern_watermark_detection,
)

from .application_cases import class_zero, digits, numbered, oracle

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"methods": {}}, ValueError, "methods must map one or more names"),
        ({"methods": {"Random": oracle}}, ValueError, "it is always added"),
        ({"methods": {"a": 3}}, TypeError, r"methods\['a'\] must be a function"),
        ({"methods": {"a": lambda *_: np.ones(3)}}, ValueError, "each of 50 points"),
        (
            {"methods": {"a": lambda *_: np.full(50, np.nan)}},
            ValueError,
            r"methods\['a'\] must be finite",
        ),
        ({"n": 1790}, ValueError, "n . n_val must be at most 1797, .* got 1810"),
        ({"n": 0}, ValueError, "n must be at least 1"),
        ({"rate": 0.001}, ValueError, "rate must be above 0 and below 1"),
        ({"rate": 1.0}, ValueError, "got 1.0"),
        ({"seeds": 0}, ValueError, "seeds must be at least 1"),
        ({"embed": lambda x: x}, ValueError, "embed must return features of shape"),
        ({"y": digits().y - 1}, ValueError, "counted from 0, got values from -1"),
        ({"y": digits().y / 2}, ValueError, "y must hold classes"),
        ({"x": digits().x[:9]}, ValueError, "x and y must have the same length"),
        ({"x": digits().y}, ValueError, "x must hold numbers of shape"),
    ],
)
def test_noisy_labels_refuses(change, error, message):
    given = {"x": digits().x, "y": digits().y, "methods": {"a": oracle}}
    given |= {"n": 50, "n_val": 20, "seeds": 1} | change
    with pytest.raises(error, match=message):
        noisy_labels(**given, key=KEY)


@pytest.mark.parametrize(
    ("application", "change", "message"),
    [
        (point_removal, {"remove": [0, 1]}, "leave at least one of 80 points"),
        (point_removal, {"remove": [0.5, 0.2]}, "remove must hold rising shares"),
        (point_removal, {"order": "best"}, "order must be one of 'lowest', 'highest'"),
        (point_addition, {"add": [0, 1]}, "add must come to at least one of 80 points"),
        (summarisation, {"n": 390}, "n . n_val . n_test must be at most 400"),
        (summarisation, {"learner": lambda *_: 2.0}, "between 0 and 1, got .2.0."),
        (acquisition, {"rounds": 9}, "rounds . buy must be at most n_pool = 100"),
        (acquisition, {"noisy_pool": 2}, "noisy_pool must be between 0 and 1, got 2"),
    ],
)
def test_others_refuse(application, change, message):
    x, y = numbered()
    arguments = {"n_val": 20, "n_test": 20, "seeds": 1, "learner": class_zero}
    if application is acquisition:
        arguments |= {"n_start": 20, "n_pool": 100, "buy": 20}
    else:
        arguments |= {"n": 80}
    with pytest.raises(ValueError, match=message):
        application(x, y, {"a": oracle}, **(arguments | change), key=KEY)


def test_watermarks_and_domains_refuse():
    data = digits()
    methods, common = {"a": oracle}, {"n": 50, "n_val": 20, "n_test": 20, "key": KEY}
    with pytest.raises(ValueError, match=r"foreign_x must hold samples of shape"):
        instance_watermark_detection(data.x, data.y, np.ones((3, 7)), methods, **common)
    with pytest.raises(ValueError, match="label must be one class below 10"):
        instance_watermark_detection(
            data.x, data.y, data.x[:3], methods, label=10, **common
        )
    with pytest.raises(ValueError, match="pattern must be one of 'corner', 'text'"):
        pattern_watermark_detection(data.x, data.y, methods, pattern="logo", **common)
    with pytest.raises(ValueError, match="label must be between 0 and 9, got 10"):
        pattern_watermark_detection(data.x, data.y, methods, label=10, **common)
    with pytest.raises(ValueError, match="samples of one shape"):
        domain_adaptation(data, (np.ones((9, 3)), data.y[:9]), methods, **common)
    with pytest.raises(TypeError, match="source must be a Dataset or a pair"):
        domain_adaptation(data.x, data, methods, **common)
