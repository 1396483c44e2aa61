"""Images, and all values that are accepted as an image."""

from __future__ import annotations

import base64
import binascii
import errno
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any, Protocol, TypeAlias, TypeGuard, cast
from urllib.parse import unquote_to_bytes, urlsplit

from graphagent._article import counted, kind_of
from graphagent._options import check_text

_KINDS = "PNG, JPEG, GIF or WebP"
_SHOWN = 80
"""Characters of a refused text that an error shows: it may contain a whole image."""


class PillowImage(Protocol):
    """An image of Pillow, which is saved as PNG. graphagent itself does not need Pillow."""

    def save(self, fp: Any, format: str | None = None) -> None:
        """Write the image to a file."""

    def convert(self, mode: str | None = None) -> Any:
        """Return the image in another mode, such as RGB."""


ImageLike: TypeAlias = "Image | PillowImage | bytes | bytearray | memoryview | str | PathLike[str]"
"""The values that are accepted as an image: an `Image`, an image of Pillow, the bytes or the path of a PNG, JPEG, GIF or WebP file, or a
`data:`, `https:` or `http:` URL."""


@dataclass(frozen=True, slots=True, init=False)
class Image:
    """An image in a message: its bytes, or its URL.

    `Image("photo.jpg")` and `Image(Path("photo.jpg"))` read the file at once, so later changes of it do not matter. The same
    holds for an image of Pillow, which becomes a PNG. Both block meanwhile: encoding a large photograph can take more than a
    second. In async code, `await anyio.to_thread.run_sync(Image, photo)` does not block.

    Args:
        data: The bytes, or anything else that is accepted as an image.
        media_type: Such as `image/png`; by default the first bytes of the data decide.
        url: The address of the image; sent to the server if data are missing. A `data:` URL becomes data.

    Raises:
        TypeError: it is not accepted as an image.
        ValueError: there is neither data nor a URL; or it is a file or a `data:` URL of something other than PNG, JPEG, GIF or WebP, and no media type is given.
        OSError: the file cannot be read; FileNotFoundError if it does not exist.
    """

    data: bytes = field(default=b"", repr=False)
    """The bytes of the file; empty if there is only a URL."""
    media_type: str = ""
    """Such as `image/png`."""
    url: str = ""
    """The address of the image; used if data are missing."""

    def __init__(self, data: ImageLike = b"", media_type: str = "", url: str = "") -> None:
        for name, text in (("media_type", media_type), ("url", url)):
            check_text(f"Image({name}=…)", text)
        if isinstance(data, bytes) and not data and not url:
            raise ValueError("Image(…) has neither data nor a URL; give it a path, the bytes of a file, or url=")
        if not isinstance(data, bytes):
            data, kind, named = _parts(data, "Image(…)", media_type)
            url = url or named
        elif not data and url[:5].lower() == "data:":
            data, kind, url = _data_url(url, "Image(url=…)", media_type)
        else:
            kind = media_type_of(data)
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "media_type", media_type or kind or "image/png")
        object.__setattr__(self, "url", url)

    @staticmethod
    def restored(data: bytes = b"", media_type: str = "", url: str = "") -> Image:
        """Return an image with exactly these fields, as they were stored."""
        image = object.__new__(Image)
        for name, value in (("data", data), ("media_type", media_type), ("url", url)):
            object.__setattr__(image, name, value)
        return image


def image_of(given: object, what: str = "the image") -> Image:
    """Return anything that is accepted as an image as an `Image`.

    Args:
        given: The image. A file is read, and an image of Pillow encoded, at once.
        what: The name of the image in errors.

    Raises:
        TypeError, ValueError, OSError: as `Image` raises them; ValueError also for bytes of something other than PNG, JPEG, GIF
            or WebP.
    """
    if isinstance(given, Image):
        return given
    data, kind, url = _parts(given, what, "")
    return Image.restored(data, kind or "image/png", url)


def images_of(given: Iterable[object] | None, what: str) -> tuple[Image, ...]:
    """Return everything in a list as `Image`s; None means no images.

    Args:
        given: The images, each a value that is accepted as an image.
        what: The name of the list in errors.

    Raises:
        TypeError: it is not a list, but for example a single image; or as `image_of`.
        ValueError, OSError: as `image_of`.
    """
    if isinstance(given, tuple) and all(isinstance(each, Image) for each in given):
        return cast("tuple[Image, ...]", given)
    return tuple(image_of(each, f"{what}[{place}]") for place, each in enumerate(_listed(given, what)))


async def load_images(given: Iterable[object] | None, what: str) -> tuple[Image, ...]:
    """Return everything in a list as `Image`s, as `images_of` does, without blocking the event loop.

    Raises:
        TypeError, ValueError, OSError: as `images_of`.
    """
    listed = _listed(given, what)
    if all(isinstance(each, Image) for each in listed):
        return cast("tuple[Image, ...]", listed)
    from anyio import to_thread

    return await to_thread.run_sync(images_of, listed, what)


def _listed(given: Iterable[object] | None, what: str) -> tuple[object, ...]:
    if given is None:
        return ()
    if type(given) is tuple:  # the empty one, for most runs
        return cast("tuple[object, ...]", given)
    if isinstance(given, Image | bytes | bytearray | memoryview | str | PathLike) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{what} is a list of images, not {kind_of(given)}; write {what}=[image]")
    return tuple(given)


def is_pillow(value: object) -> TypeGuard[PillowImage]:
    """Return whether an object is an image of Pillow, without importing it."""
    return any(kind.__module__ == "PIL.Image" and kind.__name__ == "Image" for kind in type(value).__mro__)


def has_pillow(value: object) -> bool:
    """Return whether an object is an image of Pillow, or a list or tuple with one in it."""
    return is_pillow(value) or (isinstance(value, list | tuple) and any(map(is_pillow, cast("list[object]", value))))


def with_images(value: Any) -> Any:
    """Return a tool's result with `Image`s in the place of images of Pillow, alone or in a list or tuple.

    Text, paths and bytes are results like any other, and stay as they are.
    """
    if is_pillow(value):
        return image_of(value, "the result")
    if not has_pillow(value):
        return value
    return [image_of(each, "the result") if is_pillow(each) else each for each in value]


def media_type_of(data: bytes) -> str:
    """Return the media type that the first bytes of a PNG, JPEG, GIF or WebP file imply; empty for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data.startswith(b"RIFF") and data[8:12] == b"WEBP" else ""


def _parts(given: object, what: str, media_type: str) -> tuple[bytes, str, str]:
    """Return data, media type and URL of an image. The media type of a URL is empty, since the image is not loaded."""
    if isinstance(given, Image):
        return given.data, given.media_type, given.url
    if isinstance(given, bytes | bytearray | memoryview):
        data = bytes(cast("bytes", given))
        return data, media_type or _kind(data, f"{what} is bytes that are"), ""
    if is_pillow(given):
        return _encoded(given, what), "image/png", ""
    if isinstance(given, PathLike):
        return _file(fspath(cast("PathLike[str]", given)), what, media_type)
    if isinstance(given, str):
        return _named(given, what, media_type)
    raise TypeError(
        f"{what} is {kind_of(given)}; an image is an Image, a path, bytes, an image of "
        f"Pillow, or a 'data:' or 'https:' URL"
    )


def _named(text: str, what: str, media_type: str) -> tuple[bytes, str, str]:
    """Return the image that a text names: by a URL, or else by the path of a file."""
    scheme = re.match(r"([a-z][a-z0-9+.-]+):", text, re.IGNORECASE)
    name = scheme[1].lower() if scheme else ""
    if name == "data":
        return _data_url(text, what, media_type)
    if name in ("http", "https"):
        try:
            hostname = urlsplit(text).hostname
        except ValueError:
            hostname = None
        if not hostname:
            raise ValueError(f"{what} is a URL without a host: {text[:_SHOWN]!r}")
        return b"", "", text
    if name and text[len(name) :].startswith("://"):
        raise ValueError(
            f"{what} is a URL of the kind {name!r}; servers load 'https:' URLs. For another that yours loads, write Image(url=…)"
        )
    return _file(text, what, media_type)


def _data_url(text: str, what: str, media_type: str) -> tuple[bytes, str, str]:
    head, comma, body = text[len("data:") :].partition(",")
    kind, *options = head.split(";")
    try:
        data = base64.b64decode(body, validate=True) if "base64" in options else unquote_to_bytes(body)
    except (binascii.Error, ValueError):
        data = b""
    if not comma or not data:
        raise ValueError(f"{what} is a 'data:' URL without data that can be decoded")
    if not media_type and kind and not kind.startswith("image/"):
        raise ValueError(f"{what} is a 'data:' URL of the media type {kind[:_SHOWN]!r}, which is not an image")
    return data, media_type or kind or _kind(data, f"{what} is a 'data:' URL with data that is"), ""


def _file(path: object, what: str, media_type: str) -> tuple[bytes, str, str]:
    if not isinstance(path, str):
        raise TypeError(f"{what} is a path of {type(path).__name__}, and not of text")
    try:
        with open(path, "rb") as file:  # noqa: PTH123  a Path would change the text of the error
            data = file.read()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise _no_path(path, what) from None
        # Of the class that fits the number, such as FileNotFoundError.
        raise OSError(error.errno, f"{what} cannot be read: {error.strerror}", path) from None
    except ValueError:  # it contains a null character
        raise _no_path(path, what) from None
    return data, media_type or _kind(data, f"{what} is the file {path!r}, which is"), ""


def _no_path(text: str, what: str) -> ValueError:
    return ValueError(
        f"{what} is text of {counted(len(text), 'character')}, which is neither a URL nor a path; base64 is written as "
        f"'data:image/png;base64,…', or decoded by base64.b64decode"
    )


def _kind(data: bytes, what: str) -> str:
    found = media_type_of(data)
    if not found:
        size = "empty" if not data else f"no {_KINDS}"
        raise ValueError(
            f"{what} {size}; convert it, or write Image(data, media_type='image/…') if the server knows it"
        )
    return found


def _encoded(image: PillowImage, what: str) -> bytes:
    file = io.BytesIO()
    try:
        try:
            image.save(file, format="PNG")
        except OSError:  # PNG has no such mode, for example CMYK
            file = io.BytesIO()
            image.convert("RGB").save(file, format="PNG")
    except Exception as error:
        raise ValueError(f"{what} is an image of Pillow that cannot be saved as PNG: {error}") from error
    return file.getvalue()
