"""Helpers of the shipped builders: their base class, jobs for each platform, texts of messages, output of compilers.

Tests: `tests/builders/test_params.py`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    JobDescriptor,
    MissingError,
    NamedFileError,
    ParamError,
    ProcessJobRequest,
    ProcessJobResponse,
    Result,
    SimpleBuilder,
    TooLongError,
)

_LONGEST_VALUE, _LONGEST_TEXT = 60, 200
"""Maximum numbers of characters in a message: for the value of a parameter, and for any other quoted text."""
ATLAS_MARK = "aptui atlas"
"""Name of the program in a list of frames, and keyword of the PNG text in a page: the extension of the page in the list."""
_PAGE_TEXT = re.compile(f"tEXt{ATLAS_MARK}\0(png|webp|ktx2|dds)".encode())
_PAGE_HEAD_BYTES = 4096
"""The text of a page is within this many bytes from the start of its file."""
Contradiction = Callable[[Mapping[str, Any]], str]
"""Function that describes in one line how the given parameters contradict each other; "" if they do not."""


class SourceError(Exception):
    """The source cannot be used; the error's text is one line. `place` is a line or `line:column`, "" if no place is known."""

    def __init__(self, what: str, place: str = "") -> None:
        super().__init__(what)
        self.place = place

    def explain(self, source: str) -> str:
        """Return `source:line:column: what is wrong`."""
        return f"{source}:{self.place}: {self}" if self.place else f"{source}: {self}"


class SourceBuilder(SimpleBuilder):
    """A builder whose errors begin with the path of the source. The text of a `JobError` that `build` raises is not changed."""

    def process_job(self, request: ProcessJobRequest) -> ProcessJobResponse:
        """Call `build`, and return the products that it recorded, or its error."""
        try:
            return super().process_job(request)
        except SourceError as error:
            return ProcessJobResponse(error=error.explain(_escape_line_breaks(request.source)))
        except (MissingError, TooLongError, NamedFileError, ParamError, OSError) as error:
            return ProcessJobResponse(error=f"{_escape_line_breaks(request.source)}: {one_line(error)}")


def _escape_line_breaks(path: str) -> str:
    """Return a path as one line, because only the first line of an error is shown."""
    return path if len(path.splitlines()) == 1 else repr(path)[1:-1]


def one_job_per_platform(
    request: CreateJobsRequest,
    kind: str,
    additional_fingerprint: str = "",
    contradiction: Contradiction | None = None,
) -> CreateJobsResponse:
    """Return one job for each platform of `request`, or an error if parameters are wrong or contradict each other.

    The job key is the builder's configured name.
    """
    named = f"builder {_show_value(request.builder_name)}" + (f" ({kind})" if kind != request.builder_name else "")
    jobs = []
    for platform in request.platforms:
        if reason := _find_mistake(request, platform.id, contradiction):
            where = f", platform {_show_value(platform.id)}" if request.platform_params.get(platform.id) else ""
            return CreateJobsResponse(error=f"{named}{where}: {reason}")
        jobs.append(JobDescriptor(request.builder_name, platform.id, additional_fingerprint=additional_fingerprint))
    return CreateJobsResponse(Result.SUCCESS, jobs)


# A page of an atlas may become the source of another builder: in a chain of `steps`, or as an intermediate.


def _read_listed_extension(request: ProcessJobRequest) -> str:
    """Return the extension of the source in the list of an atlas, "" if the source is not a page of an atlas."""
    with open(request.full_path, "rb") as file:
        found = _PAGE_TEXT.search(file.read(_PAGE_HEAD_BYTES))
    return found[1].decode() if found else ""


def refuse_scaled_page(request: ProcessJobRequest, size: tuple[int, int], scaled: tuple[int, int]) -> None:
    """Refuse to scale the source from `size` to `scaled` (width, height) if it is a page of an atlas.

    Raises:
        SourceError: the source is a page, and both sizes differ.
    """
    if size != scaled and _read_listed_extension(request):
        raise SourceError(
            f"this atlas page has {size[0]}x{size[1]} pixels and cannot be scaled to {scaled[0]}x{scaled[1]}, because the atlas's "
            "list gives positions on the unscaled page; set max_size of the atlas, and no parameter that scales its pages"
        )


def find_wrong_page_name(request: ProcessJobRequest, extension: str) -> str:
    """Return a warning if the source is a page whose atlas lists it with another extension than its product has, "" otherwise."""
    listed = _read_listed_extension(request)
    if listed in ("", extension):
        return ""
    stem = request.stem.lower()
    return (
        f"the list of this page's atlas names '{stem}.{listed}', but the product is '{stem}.{extension}'; set 'textures' of the "
        "atlas to the format of the products of its pages"
    )


def one_line(error: BaseException | str) -> str:
    """Return the text of a library's error in one line, never empty."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def shorten(text: str, longest: int = _LONGEST_TEXT) -> str:
    """Return `text`, shortened to at most `longest` characters to fit into a message."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def show_count(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: "1 tile", "4,200 tiles".

    Args:
        plural: the plural form, if it is not the noun with "s" or, after "sh" and "x", with "es".
    """
    return f"{count:,} {noun if count == 1 else plural or noun + ('es' if noun.endswith(('sh', 'x')) else 's')}"


def describe_damage(error: BaseException) -> str:
    """Return in plain words why a library could not read a file.

    The library's own messages do not help the author of the file.
    """
    if isinstance(error, struct.error | IndexError | EOFError | AssertionError) or "not enough" in str(error):
        return "the file ends too early, or refers to parts that do not exist"
    if isinstance(error, RecursionError):
        return "its data is nested too deeply"
    if isinstance(error, MemoryError):
        return "reading it needs more memory than is available"
    if isinstance(error, UnicodeError):
        return "the encoding of its text is unknown"
    return "the values in the file contradict each other"


def _find_mistake(request: CreateJobsRequest, platform: str, contradiction: Contradiction | None) -> str:
    try:
        request.options_for(platform)
    except ParamError as error:
        return str(error)
    return contradiction(request.params_for(platform)) if contradiction else ""


def _show_value(value: object) -> str:
    return shorten(repr(value), _LONGEST_VALUE)


class CompilerMessage(Struct, frozen=True):
    """An error or warning of a compiler; `where` is `file:line`, or "" if the compiler does not give the place."""

    is_error: bool
    where: str
    text: str


def messages(output: str, pattern: re.Pattern[str]) -> list[CompilerMessage]:
    """Return the messages in a compiler's output, each once.

    Args:
        pattern: matches the line of a message; its groups are `kind` and `text`, and optionally `file` and `line`.
    """
    found = []
    for match in map(pattern.match, output.splitlines()):
        if match:
            groups = match.groupdict()
            place = [part for part in (groups.get("file"), groups.get("line")) if part]
            found.append(
                CompilerMessage("error" in (groups.get("kind") or "error").lower(), ":".join(place), one_line(groups["text"]))
            )
    return list(dict.fromkeys(found))


def summarize_errors(errors: Sequence[str]) -> str:
    """Return the first of `errors` in one line, with the number of further errors."""
    return f"{errors[0]} (and {len(errors) - 1} more)" if len(errors) > 1 else errors[0]
