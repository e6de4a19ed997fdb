"""The secure two-party phase on CrypTen; torch lives here only.

What is here so far is the import of CrypTen itself; the rest follows the manifest of
`jaxsel.proxy`.
"""

from ._compat import import_crypten as import_crypten
