"""Messages as files: named arrays and a JSON header, each with a sha256."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from jaxsel._inputs.checks import check_count

from .archive import first_part, pieces, unpack
from .staged import staged

MAX_BYTES = 1 << 30

_LARGEST = (1 << 32) - (1 << 16)  # bytes: sizes in a zip archive have 32 bits
_MAX_HEADER = 1 << 22  # bytes
_MAX_DIMENSIONS = 8
# Most bytes before the arrays. Of larger files these are checked before the rest is
# read.
HEAD_BYTES = _MAX_HEADER + (1 << 12)
_LONGEST = 500  # characters of a reason: the refused value may be long
# Real numbers and booleans, little-endian, and texts of fixed length.
_DTYPE = re.compile(r"\|b1|\|[iu]1|<[iu][248]|<f[248]|<U[1-9]\d{0,6}")
_ID = re.compile(r"[0-9a-f]{32}")


@dataclasses.dataclass(frozen=True)
class Format:
    """Name and version of a room's file format.

    Attributes:
        name: Such as "jaxsel.market".
        version: The only one that is read.
    """

    name: str
    version: int


def dtype_name(array: np.ndarray) -> str:
    """Return the name of an array's type in a file, such as `<f4`.

    Raises:
        TypeError: If files can't hold it.
    """
    name = array.dtype.newbyteorder("<").str
    if not is_dtype(name):
        raise TypeError(f"must hold real numbers or texts, got dtype {array.dtype}")
    return name


def is_dtype(name: str) -> bool:
    """Return whether files can hold arrays of this type."""
    return _DTYPE.fullmatch(name) is not None


def write(
    form: Format,
    path: str | os.PathLike[str],
    kind: str,
    fields: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray | None],
) -> Path:
    """Write a message beside `path`, then put it in its place in one step.

    Args:
        form: The format.
        path: File to write; `.npz` is appended if it does not end so.
        kind: Kind of message, such as "request".
        fields: Fields of the header, of types that JSON knows; no floats.
        arrays: The arrays by name; None is left out.

    Returns:
        The path written to.

    Raises:
        ValueError: If the file would be larger than 4 GB.
    """
    path = Path(path)
    if path.suffix != ".npz":
        path = path.with_name(path.name + ".npz")
    parts = _parts(form, kind, fields, arrays)
    with staged([path]) as [part], part.open("wb") as file:
        file.writelines(pieces(parts))
    return path


def pack(
    form: Format,
    kind: str,
    fields: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray | None],
) -> bytes:
    """Return the bytes of the file that `write` would write."""
    return b"".join(pieces(_parts(form, kind, fields, arrays)))


def _parts(
    form: Format,
    kind: str,
    fields: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray | None],
) -> dict[str, bytes]:
    contents, declared = {}, {}
    for name, array in sorted(arrays.items()):
        if array is None:
            continue
        dtype = dtype_name(array)
        raw = np.ascontiguousarray(array, np.dtype(dtype)).tobytes()
        contents[f"{name}.npy"] = _npy_head(dtype, array.shape) + raw
        declared[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "sha256": hashlib.sha256(raw).hexdigest(),
        }
    header = _to_json(
        {
            "format": form.name,
            "version": form.version,
            "kind": kind,
            "fields": fields,
            "arrays": declared,
        }
    )
    if len(header) > _MAX_HEADER:
        raise ValueError(f"the header of a {kind} must be below 4 MiB: shorten names")
    digest = hashlib.sha256(header).hexdigest().encode()
    parts = {"header.json": header, "header.sha256": digest, **contents}
    if sum(map(len, parts.values())) > _LARGEST:
        raise ValueError(f"a {kind} must be below 4 GB in all")
    return parts


@contextmanager
def reading(
    form: Format,
    path: str | os.PathLike[str],
    kind: str,
    names: tuple[str, ...],
    max_bytes: int,
) -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """Read a file that `write` wrote, and nothing else; errors name the file.

    Errors of the content inside the `with` block are reported alike.

    Args:
        form: The format.
        path: The file.
        kind: The kind of message that it must hold.
        names: The arrays that it may hold.
        max_bytes: Largest file to read.

    Yields:
        The fields, which the caller must check, and the arrays.

    Raises:
        FileNotFoundError: If there is no such file.
        TypeError: If `path` is no path, or `max_bytes` no whole number.
        ValueError: If the file is anything else, or `max_bytes` is less than 1.
    """
    file, max_bytes = Path(path), check_count("max_bytes", max_bytes)
    with _refusing(os.fspath(path)):
        yield _read(form, file, kind, names, max_bytes)


@contextmanager
def unpacking(
    form: Format, data: bytes, kind: str, names: tuple[str, ...], max_bytes: int
) -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """Read bytes that `pack` returned, as `reading` reads a file.

    Raises:
        TypeError: If `data` is no bytes, or `max_bytes` no whole number.
        ValueError: If it is anything else, or `max_bytes` is less than 1.
    """
    max_bytes = check_count("max_bytes", max_bytes)
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"data must be bytes, got {type(data).__name__}")
    with _refusing("the message in bytes"):
        view = memoryview(data).cast("B")
        _check_length(len(view), max_bytes)
        yield _unpacked(form, view, kind, names)


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} is refused: {str(error)[:_LONGEST]}") from error


def _check_length(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ValueError(f"it has {size} bytes, more than max_bytes = {max_bytes}")


def check_fields(name: str, fields: Any, names: set[str]) -> None:
    """Refuse a JSON object that lacks fields, or has others."""
    if not isinstance(fields, dict) or set(fields) != names:
        shown = sorted(fields) if isinstance(fields, dict) else fields
        raise ValueError(
            f"{name} must have the fields {', '.join(sorted(names))}, got "
            f"{str(shown)[:200]!r}"
        )


def check_arrays(arrays: Mapping[str, np.ndarray], names: Collection[str]) -> None:
    """Refuse a file that lacks arrays, or has others."""
    if set(arrays) != set(names):
        raise ValueError(f"arrays must be {', '.join(names) or 'none'}")


def check_text(
    name: str, value: Any, *, longest: int = 1000, empty: bool = False
) -> str:
    """Return the text; raise if it has control characters, which act on terminals."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, got {str(value)[:40]!r}")
    if not value.isprintable() or len(value) > longest or not (value or empty):
        raise ValueError(
            f"{name} must be printable, on one line, {'' if empty else 'not empty '}"
            f"and of at most {longest} characters, got {value[:40]!r}"
        )
    return value


def check_id(name: str, value: Any) -> None:
    """Raise a ValueError unless a value is 128 bits in hexadecimal digits."""
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise ValueError(
            f"{name} must be 32 hexadecimal digits, got {str(value)[:40]!r}"
        )


def _read(
    form: Format, path: Path, kind: str, names: tuple[str, ...], max_bytes: int
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there, or is not a file")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        _check_length(size, max_bytes)
        head = file.read(min(size, HEAD_BYTES))
        if size > len(head):
            _check_size(form, memoryview(head), kind, names, size)
        # No more than `size`, which was checked: the file may be growing.
        data = memoryview(head + file.read(size - len(head)))
    return _unpacked(form, data, kind, names)


def _unpacked(
    form: Format, data: memoryview, kind: str, names: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    parts = unpack(data)
    header = _header(form, parts, kind)
    declared = header["arrays"]
    for name in declared:
        if name not in names:
            raise ValueError(f"array {name[:40]!r} has no place in a {kind}")
    order = ["header.json", "header.sha256", *(f"{name}.npy" for name in declared)]
    for name in parts:
        if name not in order:
            raise ValueError(f"part {name!r} is not declared in the header")
    if list(parts) != order:
        raise ValueError("arrays of the header are missing, or in another order")
    arrays = {
        name: _array(name, facts, parts[f"{name}.npy"])
        for name, facts in declared.items()
    }
    return header["fields"], arrays


def _check_size(
    form: Format, head: memoryview, kind: str, names: tuple[str, ...], size: int
) -> None:
    """Refuse a file larger than its header declares, before reading the rest."""
    part = first_part(head, "header.json")
    if len(part) > _MAX_HEADER:
        raise ValueError("header.json is larger than 4 MiB")
    header = _parsed(form, bytes(part), kind)
    most = len(head)
    for name, facts in header["arrays"].items():
        if name not in names:
            raise ValueError(f"array {name[:40]!r} has no place in a {kind}")
        dtype, shape = _declared(name, facts)
        most += len(_npy_head(dtype, shape))
        most += math.prod(shape) * np.dtype(dtype).itemsize
    if size > most:
        raise ValueError(
            f"it has {size} bytes, more than the {most} that its header can lead to"
        )


def _header(form: Format, parts: Mapping[str, memoryview], kind: str) -> dict[str, Any]:
    if "header.json" not in parts or "header.sha256" not in parts:
        raise ValueError("header.json or header.sha256 is missing")
    text = bytes(parts["header.json"][: _MAX_HEADER + 1])
    if len(text) > _MAX_HEADER:
        raise ValueError("header.json is larger than 4 MiB")
    if hashlib.sha256(text).hexdigest().encode() != parts["header.sha256"]:
        raise ValueError("header.json is damaged: its sha256 differs")
    return _parsed(form, text, kind)


def _parsed(form: Format, text: bytes, kind: str) -> dict[str, Any]:
    try:
        header = json.loads(text, parse_constant=_no_constant)
        # Blanks, repeated keys and the like would be room for something else.
        if _to_json(header) != text:
            raise ValueError("header.json is not in canonical form")
    except RecursionError:
        raise ValueError("header.json is nested too deeply") from None
    if not isinstance(header, dict) or header.get("format") != form.name:
        raise ValueError(f"header.json is not one of {form.name}")
    if type(header.get("version")) is not int or header["version"] != form.version:
        raise ValueError(
            f"version {str(header.get('version'))[:40]!r} is not known: this is "
            f"{form.name} of version {form.version}"
        )
    if header.get("kind") != kind:
        raise ValueError(f"it is no {kind} but holds {str(header.get('kind'))[:40]!r}")
    if set(header) != {"format", "version", "kind", "fields", "arrays"} or not all(
        isinstance(header[name], dict) for name in ("fields", "arrays")
    ):
        raise ValueError("header.json must have format, version, kind, fields, arrays")
    return header


def _declared(name: str, facts: Any) -> tuple[str, list[int]]:
    """Return the dtype and shape that a header declares for an array."""
    if not isinstance(facts, dict) or set(facts) != {"dtype", "shape", "sha256"}:
        raise ValueError(f"{name} must be declared by dtype, shape and sha256")
    dtype, shape = facts["dtype"], facts["shape"]
    if not isinstance(dtype, str) or not is_dtype(dtype):
        raise ValueError(
            f"{name} must hold real numbers or texts, got dtype {str(dtype)[:40]!r}"
        )
    if (
        not isinstance(shape, list)
        or len(shape) > _MAX_DIMENSIONS
        or not all(type(n) is int and 0 <= n < 1 << 31 for n in shape)
    ):
        raise ValueError(f"{name} has an impossible shape {str(shape)[:60]}")
    return dtype, shape


def _array(name: str, facts: Any, content: memoryview) -> np.ndarray:
    dtype, shape = _declared(name, facts)
    head = _npy_head(dtype, shape)
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if len(content) != len(head) + size:
        raise ValueError(
            f"{name} must have {len(head) + size} bytes for shape {shape} and dtype "
            f"{dtype}, got {len(content)}"
        )
    raw = content[len(head) :]
    if content[: len(head)] != head:
        raise ValueError(f"{name}.npy declares another shape or dtype than the header")
    if hashlib.sha256(raw).hexdigest() != facts["sha256"]:
        raise ValueError(f"{name} is damaged: its sha256 differs")
    _check_bits(name, dtype, raw)
    try:
        array = np.empty(shape, dtype)
    except ValueError as error:  # [0, large, large]
        raise ValueError(f"{name} has an impossible shape {shape}") from error
    if array.size:
        array[...] = np.frombuffer(raw, dtype).reshape(shape)
    return array


def _check_bits(name: str, dtype: str, raw: memoryview) -> None:
    """Refuse booleans other than 0 and 1, and invalid Unicode: NumPy checks neither."""
    if dtype == "|b1" and np.frombuffer(raw, np.uint8).max(initial=0) > 1:
        raise ValueError(f"{name} must hold booleans of 0 and 1")
    if dtype.startswith("<U"):
        points = np.frombuffer(raw, "<u4")
        surrogate = (points >= 0xD800) & (points <= 0xDFFF)
        if points.max(initial=0) > 0x10FFFF or surrogate.any():
            raise ValueError(f"{name} must hold texts in Unicode")


def _npy_head(dtype: str, shape: tuple[int, ...] | list[int]) -> bytes:
    """Return the canonical header of an `.npy` file of version 1.0."""
    facts = {"descr": dtype, "fortran_order": False, "shape": tuple(shape)}
    text = repr(facts).encode()
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text


def _to_json(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, sort_keys=True, indent=1).encode()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"header.json holds {name}")
