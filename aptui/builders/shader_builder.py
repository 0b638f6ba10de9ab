"""The `shader` builder: GLSL (and HLSL, if asked for) becomes SPIR-V by glslangValidator, glslang or glslc.

The compiler runs in the scan folder with relative names, so that no path of this host enters a product. Files that a shader
includes, directly or not, are source dependencies, and so is every place that was searched for a missing include.
"""

from __future__ import annotations

import codecs
import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar
from uuid import UUID

from aptui.builders.common import CompilerMessage, messages, one_job_per_platform, one_line, summarize_errors
from aptui.builders.files import lfs_source
from aptui.builders.files.references import UnusableError, declare_sources, filter_allowed, placed, read
from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    ForbiddenNameError,
    JobProduct,
    MissingError,
    ParamError,
    ProcessJobRequest,
    ProcessJobResponse,
    Result,
    TooLongError,
    check_params,
    find_program,
    located,
    program_digest,
    run_program,
)

SPIRV_ASSET_TYPE = UUID("1c6d94e8-a57f-5d32-8b41-f30e7c9a650b")
"""Asset type of a module in SPIR-V."""

SHADER_ASSET_TYPE = UUID("92f7b3d5-0e68-5a14-bc29-6d84e1f7a30c")
"""Asset type of a shader as it was written."""

COMPILERS = ("glslangValidator", "glslang", "glslc")

_STAGES = ("vert", "frag", "comp", "geom", "tesc", "tese", "mesh", "task", "rgen", "rint", "rahit", "rchit", "rmiss", "rcall")
_TARGETS = ("vulkan1.0", "vulkan1.1", "vulkan1.2", "vulkan1.3", "opengl")
_INCLUDE = re.compile(r"""\#[^\S\n]*include\b(?:[^\S\n]*(?:"([^"\n]*)"|<([^>\n]*)>))?""")
_TEXT_OR_COMMENT = re.compile(r"""("[^"\n]*"|<[^>\n]*>)|/\*.*?(?:\*/|\Z)|//[^\n]*""", re.DOTALL)
_GLSLANG_LINE = re.compile(r"^(?P<kind>ERROR|WARNING): (?:(?P<file>[^:]+):(?P<line>\d+): )?(?P<text>.*)$")
_GLSLC_LINE = re.compile(
    r"^(?:glslc: )?(?:(?P<file>[^:]+):(?:(?P<line>\d+):)? )?(?P<kind>fatal error|error|warning): (?P<text>.*)$"
)
_SUMMARY = re.compile(r"^\d+ compilation errors|^('' : )?compilation terminated|^No code generated", re.IGNORECASE)
_OPTIMISATIONS = {"none": "-O0", "speed": "-O", "size": "-Os"}

_NAME = {"type": "string", "pattern": ".+"}
_OPTIONAL_NAME = {"anyOf": [_NAME, {"type": "null"}], "default": None}


class _BrokenShaderError(Exception):
    """The shader does not compile; the text is one line with its place."""


class ShaderBuilder:
    """Makes `<file name>.spv` of a shader; a broken one fails as `sky.frag:12: what is wrong`."""

    name: ClassVar[str] = "shader"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.vert", "*.frag", "*.comp", "*.geom", "*.tesc", "*.tese")
    analysis_fingerprint: ClassVar[str] = "1"
    params_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "output": {
                "enum": ["spirv", "source"],
                "default": "spirv",
                "description": "source: only checked, and copied; for GLSL of OpenGL ES and old versions, which SPIR-V does not "
                "know",
            },
            "target_env": {"enum": [*_TARGETS], "default": "vulkan1.0"},
            "stage": {
                "anyOf": [{"enum": [*_STAGES]}, {"type": "null"}],
                "default": None,
                "description": "taken from the extension, or from the one before .glsl and .hlsl, unless given",
            },
            "entry_point": {"type": "string", "pattern": r"^[A-Za-z_]\w*(?!\n)$", "default": "main"},
            "optimise": {"enum": [*_OPTIMISATIONS], "default": "none"},
            "debug": {"type": "boolean", "default": False, "description": "keep names and lines in the module"},
            "defines": {
                "type": "object",
                "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": -(2**63), "maximum": 2**63}]},
                "default": {},
                "description": "macros, {NAME: value}",
            },
            "include_paths": {
                "type": "array",
                "items": _NAME,
                "default": [],
                "description": "folders in the scan folder, looked in after that of the file that includes",
            },
            "compiler": {
                **_OPTIONAL_NAME,
                "is_trusted_only": True,
                "description": "by name or path; the first of glslangValidator, glslang, glslc unless given",
            },
        },
    }

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job per platform; the compiler is part of its fingerprint."""
        response = one_job_per_platform(request, self.name, self.params_schema, contradiction=_contradiction)
        paths: dict[str, None] = {}
        for job in response.jobs:
            options = check_params(self.params_schema, request.params_for(job.platform))
            job.additional_fingerprint = program_digest(find_program(options["compiler"], COMPILERS))
            paths |= dict.fromkeys(list_included(request, options["include_paths"]))
        response.source_dependencies = declare_sources(request.scan_folder, filter_allowed(request, paths))
        return response

    def process_job(self, request: ProcessJobRequest) -> ProcessJobResponse:
        """Compile the source and write its one product."""
        try:
            options = check_params(self.params_schema, request.params)
            data = lfs_source.source_bytes(request)
            product = _compile_shader(data, options, request)
        except (_BrokenShaderError, ParamError, MissingError, TooLongError, UnusableError, OSError) as error:
            text = one_line(error)
            is_placed = text.startswith(f"{request.source}:") or isinstance(error, _BrokenShaderError)
            return ProcessJobResponse(error=text if is_placed else f"{request.source}: {text}")
        return ProcessJobResponse(Result.SUCCESS, [product])


def list_included(
    request: CreateJobsRequest | ProcessJobRequest, include_paths: Sequence[str], *, refuses: bool = False
) -> list[str]:
    """Return the files that the source includes, directly or not, relative to the scan folder, and where others were missed.

    Args:
        request: whose source.
        include_paths: folders in the scan folder.
        refuses: an include of something outside the project, or one that cannot be understood, is an error: the compiler would read
            it.

    Raises:
        ForbiddenNameError, _BrokenError: see `refuses`.
    """
    source = request.source
    seen = {source}
    named: dict[str, None] = {}
    todo = [source]
    while todo:
        file = todo.pop()
        try:
            text = _directives(read(request, file).decode("latin-1"))
        except UnusableError:
            continue
        for quoted, bracketed in _INCLUDE.findall(text):
            if not (quoted or bracketed):
                if refuses:
                    raise _BrokenShaderError(f"{file}: an #include without a name in quotes or angle brackets is not understood")
                continue
            for path in _places(file, quoted or bracketed, include_paths):
                try:
                    real = located(request.scan_folder, path, request.scan_folders, file)
                except ForbiddenNameError:
                    if refuses:
                        raise
                    continue
                named[path] = None
                if os.path.isfile(real):
                    if path not in seen:
                        seen.add(path)
                        todo.append(path)
                    break
    named.pop(source, None)
    return sorted(named)


def _directives(text: str) -> str:
    """Return a shader's text as a preprocessor sees its lines: continued ones joined, without comments."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\\\n", "")
    return _TEXT_OR_COMMENT.sub(lambda match: match[1] or " ", text)


def _places(file: str, name: str, include_paths: Sequence[str]) -> Iterator[str]:
    """Yield where a compiler looks for `name`, in its order."""
    yield placed(file, name)
    for folder in include_paths:
        yield posixpath.normpath(posixpath.join(folder, name))


def _contradiction(params: Mapping[str, Any]) -> str:
    for name in params.get("defines") or {}:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            return f"parameter 'defines' has the name {name!r}, which is not the name of a macro"
    return ""


def _stage(source: str, options: Mapping[str, Any]) -> str:
    if options["stage"]:
        return str(options["stage"])
    stem, extension = posixpath.splitext(source.lower())
    if extension in (".glsl", ".hlsl"):
        extension = posixpath.splitext(stem)[1]
    if extension[1:] not in _STAGES:
        raise ParamError(f"its name does not show its stage; set the parameter 'stage' to one of {', '.join(_STAGES)}")
    return extension[1:]


def _compile_shader(data: bytes, options: Mapping[str, Any], request: ProcessJobRequest) -> JobProduct:
    compiler = find_program(options["compiler"], COMPILERS)
    if not compiler:
        requested = f"the program '{options['compiler']}'" if options["compiler"] else f"one of the programs {', '.join(COMPILERS)}"
        raise MissingError(f"needs {requested}: install the package glslang-tools, or set the parameter 'compiler'")
    included = list_included(request, options["include_paths"], refuses=True)
    for folder in options["include_paths"]:
        located(request.scan_folder, posixpath.normpath(f"{folder}/."), request.scan_folders, "the parameter 'include_paths'")
    is_glslc = "glslc" in os.path.basename(compiler).lower()
    is_copy = options["output"] == "source"
    if is_copy and is_glslc:
        raise MissingError("needs the program glslangValidator for output: source, because glslc checks only what it compiles")
    name = os.path.basename(request.source) + ("" if is_copy else ".spv")
    path = request.product_path(name)
    if os.path.dirname(request.source).startswith("-"):
        raise ParamError("its folder's name begins with '-', which compilers take for an option")
    # Relative names: modules with lines and messages contain the path of the source.
    source = request.source if not request.source.startswith("-") else f"./{request.source}"
    spell = _glslc_arguments if is_glslc else _glslang_arguments
    arguments = spell(options, _stage(request.source, options), source, "" if is_copy else path)
    ended = run_program([compiler, *arguments], _folder_without_marks(data, included, options["include_paths"], request))
    _report(ended.status, ended.output, is_glslc=is_glslc, request=request)
    if is_copy:
        with open(path, "wb") as file:
            file.write(data)
    elif not os.path.isfile(path):
        raise _BrokenShaderError(f"{request.source}: the compiler ended well, and made nothing")
    return JobProduct(name, 0, SHADER_ASSET_TYPE if is_copy else SPIRV_ASSET_TYPE)


def _folder_without_marks(data: bytes, included: Sequence[str], include_paths: Sequence[str], request: ProcessJobRequest) -> str:
    """Return where to compile: the scan folder, or a copy of the shader and its includes if any begins with a byte order mark.

    Compilers take the mark for a character of the program.
    """
    files = {request.source: data}
    for path in included:
        try:
            files[path] = read(request, path)
        except UnusableError:
            continue  # the compiler does not search here
    marked = [path for path, text in files.items() if text.startswith(codecs.BOM_UTF8)]
    for path, text in files.items():
        if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise _BrokenShaderError(f"{path}:1:1: is UTF-16, which compilers do not read; save it as UTF-8")
    if not marked:
        return request.scan_folder
    if any(path.startswith(("../", "/")) for path in files):
        raise _BrokenShaderError(f"{marked[0]}:1:1: begins with a byte order mark; save it as UTF-8 without one")
    folder = os.path.join(request.temp_dir, "without-marks")
    for path in include_paths:
        os.makedirs(os.path.join(folder, path), exist_ok=True)
    for path, text in files.items():
        place = os.path.join(folder, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(text.removeprefix(codecs.BOM_UTF8))
    return folder


def _glslang_arguments(options: Mapping[str, Any], stage: str, source: str, product: str) -> list[str]:
    arguments = ["-S", stage]
    if product:
        arguments += ["--target-env", options["target_env"], "-o", product]
        arguments += [{"none": "-Od", "speed": "", "size": "-Os"}[options["optimise"]], "-g" if options["debug"] else "-g0"]
    if source.lower().endswith(".hlsl"):
        arguments += ["-D", "-e", options["entry_point"]]
    elif options["entry_point"] != "main":
        arguments += ["--source-entrypoint", "main", "-e", options["entry_point"]]
    return [each for each in [*arguments, *_macros(options), source] if each]


def _glslc_arguments(options: Mapping[str, Any], stage: str, source: str, product: str) -> list[str]:
    language = "hlsl" if source.lower().endswith(".hlsl") else "glsl"
    arguments = [
        f"-fshader-stage={stage}",
        "-x",
        language,
        f"--target-env={options['target_env']}",
        _OPTIMISATIONS[options["optimise"]],
    ]
    if options["debug"]:
        arguments.append("-g")
    if options["entry_point"] != "main":
        arguments.append(f"-fentry-point={options['entry_point']}")
    return [*arguments, *_macros(options), "-o", product, source]


def _macros(options: Mapping[str, Any]) -> list[str]:
    return [
        *(f"-D{name}={value}" for name, value in sorted(options["defines"].items())),
        *(f"-I{folder}" for folder in options["include_paths"]),
    ]


def _report(status: int, output: str, *, is_glslc: bool, request: ProcessJobRequest) -> None:
    """Log the compiler's output line by line, and raise its first error if it failed."""
    found = [each for each in messages(output, _GLSLC_LINE if is_glslc else _GLSLANG_LINE) if not _SUMMARY.match(each.text)]
    for message in found:
        if not message.is_error:
            request.log.warning(_format_placed(message, request.source))
    # A shader that does not compile does not link either; that message has no place.
    wrong = [each for each in found if each.is_error]
    errors = [_format_placed(each, request.source) for each in [each for each in wrong if each.where] or wrong]
    if status == 0:
        return
    if not errors:
        ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise _BrokenShaderError(
            f"{request.source}: the compiler {ended}: {one_line(output[-400:]) if output.strip() else 'it printed nothing'}"
        )
    for text in errors[1:]:
        request.log.error(text)
    raise _BrokenShaderError(summarize_errors(errors))


def _format_placed(message: CompilerMessage, source: str) -> str:
    file, colon, line = message.where.rpartition(":")
    # glslang calls the source 0 when it makes no module.
    place = f"{source if file == '0' else file}{colon}{line}".removeprefix("./")
    return f"{place or source}: {message.text}"
