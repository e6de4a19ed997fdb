"""The one form of deprecation warnings; CONTRIBUTING.md has the policy."""

import warnings


def warn_deprecated(what: str, *, since: str, removal: str, instead: str) -> None:
    """Issue a DeprecationWarning at the line that called our caller.

    For an argument, a value of one, or an attribute. A whole function or class has the
    decorator of PEP 702, `typing_extensions.deprecated`, which type checkers see, too.

    Args:
        what: As users write it, such as "knn_shapley(metric=...)".
        since: Version that warns first.
        removal: Version that will not have it; `tests/test_deprecated.py` fails there.
        instead: The replacement, such as "pass distance".
    """
    warnings.warn(
        f"{what} is deprecated since jaxsel {since}, and {removal} will not have it: "
        f"{instead}",
        DeprecationWarning,
        stacklevel=3,
    )
