"""Canonical zip archives: the parts determine every byte.

Parts are stored one after the other, uncompressed, without comments, gaps or extra
fields. A reader that compares byte for byte with what it would have written itself
leaves no room for anything beside the parts, and nothing can expand.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Mapping

# The fields are those of the ZIP specification (APPNOTE 4.3.7, 4.3.12, 4.3.16).
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_NAME = re.compile(r"[a-z_]+\.(npy|json|sha256)")
_MAX_PARTS = 16


def pieces(parts: Mapping[str, bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of an archive, piece by piece."""
    offset, directory = 0, []
    for name, content in parts.items():
        encoded, size = name.encode("ascii"), len(content)
        # Version 2.0, no flags, stored, at midnight on 1 January 1980.
        facts = (20, 0, 0, 0, 0x21, zlib.crc32(content), size, size, len(encoded), 0)
        yield _LOCAL.pack(b"PK\3\4", *facts) + encoded
        yield content
        # Written on Unix (3), readable and writable by its owner.
        central = (0, 0, 0, 0o600 << 16, offset)
        directory.append(_CENTRAL.pack(b"PK\1\2", 0x314, *facts, *central) + encoded)
        offset += _LOCAL.size + len(encoded) + size
    yield from directory
    size = sum(map(len, directory))
    yield _END.pack(b"PK\5\6", 0, 0, len(parts), len(parts), size, offset, 0)


def first_part(data: memoryview, name: str) -> memoryview:
    """Return the content of an archive's first part from its first bytes.

    Raises:
        ValueError: If `pieces` can't have written it, or it has another name.
    """
    if data[:4] != b"PK\3\4" or len(data) < _LOCAL.size:
        raise ValueError("it is no file of jaxsel's")
    fields = _LOCAL.unpack(data[: _LOCAL.size])
    size, n_name = fields[7], fields[9]
    start = _LOCAL.size + n_name
    if data[_LOCAL.size : start] != name.encode("ascii"):
        raise ValueError(f"it does not begin with {name}")
    if start + size > len(data):
        raise ValueError(f"{name} is cut short, or its size is wrong")
    return data[start : start + size]


def unpack(data: memoryview) -> dict[str, memoryview]:
    """Return the parts of an archive, as views of its bytes.

    Raises:
        ValueError: If `pieces` did not write it.
    """
    parts: dict[str, memoryview] = {}
    offset = 0
    while data[offset : offset + 4] == b"PK\3\4":
        start = offset + _LOCAL.size
        if start > len(data):
            raise ValueError("it is cut short")
        fields = _LOCAL.unpack(data[offset:start])
        flags, packing, crc, size, n_name, n_extra = (
            fields[i] for i in (2, 3, 6, 7, 9, 10)
        )
        name = bytes(data[start : start + n_name]).decode("ascii", "replace")
        start += n_name
        if _NAME.fullmatch(name) is None or name in parts:
            raise ValueError(f"part {name[:40]!r} is unknown, or there twice")
        if flags or packing or n_extra:
            raise ValueError(
                f"{name} is compressed, encrypted or has extra fields, which no file "
                "of jaxsel's has"
            )
        if start + size > len(data):
            raise ValueError(f"{name} is cut short, or its size is wrong")
        if len(parts) == _MAX_PARTS:
            raise ValueError(f"it has more than {_MAX_PARTS} parts")
        content = data[start : start + size]
        if zlib.crc32(content) != crc:
            raise ValueError(f"{name} is damaged: its CRC differs")
        parts[name] = content
        offset = start + size
    if not parts:
        raise ValueError("it is no file of jaxsel's")
    offset = 0
    for piece in pieces(parts):
        if data[offset : offset + len(piece)] != piece:
            raise ValueError("its table of contents is damaged, or cut short")
        offset += len(piece)
    if offset != len(data):
        raise ValueError(f"{len(data) - offset} bytes follow its end")
    return parts
