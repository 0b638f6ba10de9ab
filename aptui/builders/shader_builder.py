"""The `shader` builder: GLSL (on request also HLSL and Slang) becomes SPIR-V by glslangValidator, glslang, glslc, dxc or slangc.

A source has one job, or one job for each variant (combination of macros). A job may also write the interface of the module as JSON,
and the module in other languages by spirv-cross or naga.

The compiler runs in the scan folder with relative names, so that no path of this host enters a product. Files that a shader
includes, directly or indirectly, are source dependencies. So is every path that was searched for a missing include.
"""

from __future__ import annotations

import codecs
import itertools
import json
import os
import posixpath
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from msgspec import Meta, Struct
from msgspec.structs import replace

from aptui.builders.common import (
    CompilerMessage,
    SourceBuilder,
    SourceError,
    messages,
    one_job_per_platform,
    one_line,
    show_count,
    summarize_errors,
)
from aptui.builders.files.references import declare_sources, filter_allowed, read
from aptui.builders.files.spirv_module import reflect
from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    ForbiddenNameError,
    JobDescriptor,
    JobError,
    JobProduct,
    MissingError,
    NamedFileError,
    ParamError,
    ProcessJobRequest,
    find_program,
    located,
    placed_name,
    program_digest,
    run_program,
)

SPIRV_ASSET_TYPE = UUID("1c6d94e8-a57f-5d32-8b41-f30e7c9a650b")

SHADER_ASSET_TYPE = UUID("92f7b3d5-0e68-5a14-bc29-6d84e1f7a30c")

REFLECTION_ASSET_TYPE = UUID("6a0f4e57-93b1-5c28-8d7e-2b9c1f5e6d84")
"""Asset type of the interface of a module, in JSON."""

COMPILERS = ("glslangValidator", "glslang", "glslc")

_INCLUDE = re.compile(r"""\#[^\S\n]*include\b(?:[^\S\n]*(?:"([^"\n]*)"|<([^>\n]*)>))?""")
_IMPORT = re.compile(r"""\b(?:import|__include)\s+(?:"([^"\n]*)"|([\w.]+))\s*;""")
_TEXT_OR_COMMENT = re.compile(r"""("[^"\n]*"|<[^>\n]*>)|/\*.*?(?:\*/|\Z)|//[^\n]*""", re.DOTALL)
_GLSLANG_LINE = re.compile(r"^(?P<kind>ERROR|WARNING): (?:(?P<file>[^:]+):(?P<line>\d+): )?(?P<text>.*)$")
_GLSLC_LINE = re.compile(
    r"^(?:glslc: )?(?:(?P<file>[^:]+):(?:(?P<line>\d+):(?:\d+:)?)? )?(?P<kind>fatal error|error|warning): (?P<text>.*)$"
)
_SLANGC_LINE = re.compile(r"^(?P<file>[^()]+)\((?P<line>\d+)\): (?P<kind>fatal error|error|warning)(?: \d+)?: (?P<text>.*)$")
_SLANGC_PLACE = re.compile(
    r"^((?:fatal )?error|warning)\[\w+\]: .*\n\s*--> (.+):(\d+):\d+\n[^|]*\|.*\n[^|]*\|.*\n[^|]*\|[ \t]*\^+[ \t]*", re.MULTILINE
)
"""Matches the start of a message of slangc 2026 or later: kind, place, source line, and the `^` marks below that line."""
_SUMMARY = re.compile(r"^\d+ compilation errors|^('' : )?compilation terminated|^No code generated", re.IGNORECASE)
_ES = re.compile(rb"\b(?:lowp|mediump|highp)\b")
"""Matches the precisions of GLSL of OpenGL ES, which GLSL of desktops before version 1.30 does not have."""
MOST_VARIANTS = 1024
"""Maximum number of variants of a shader: each is a job on each platform."""

_CROSS = {
    "essl100": ("spirv-cross", "--version", "100", "--es"),
    "essl300": ("spirv-cross", "--version", "300", "--es"),
    "essl310": ("spirv-cross", "--version", "310", "--es"),
    "glsl330": ("spirv-cross", "--version", "330", "--no-es"),
    "glsl450": ("spirv-cross", "--version", "450", "--no-es"),
    "hlsl": ("spirv-cross", "--hlsl", "--shader-model", "50"),
    "metal": ("spirv-cross", "--msl"),
    "wgsl": ("naga",),
}
"""{target language: (program that translates to it, its arguments)}. The language is also the extension of the product."""

_OPTIMISATIONS = {"none": "-O0", "speed": "-O", "size": "-Os"}

_DXC_PROFILES = {
    "vert": "vs_6_0", "frag": "ps_6_0", "comp": "cs_6_0", "geom": "gs_6_0", "tesc": "hs_6_0", "tese": "ds_6_0", "mesh": "ms_6_5",
    "task": "as_6_5",
}  # fmt: skip
_SLANG_STAGES = {
    "vert": "vertex", "frag": "fragment", "comp": "compute", "geom": "geometry", "tesc": "hull", "tese": "domain", "mesh": "mesh",
    "task": "amplification", "rgen": "raygeneration", "rint": "intersection", "rahit": "anyhit", "rchit": "closesthit",
    "rmiss": "miss", "rcall": "callable",
}  # fmt: skip

Name = Annotated[str, Meta(pattern=".+")]
Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class ShaderParams(Struct, frozen=True, kw_only=True):
    """Parameters of this builder; the documentation and `aptui explain` show the descriptions of the fields."""

    output: Annotated[
        Literal["spirv", "source"],
        Meta(
            description="spirv: compile to SPIR-V; source: only check and copy, for GLSL of OpenGL ES and of old versions, which "
            "SPIR-V does not support"
        ),
    ] = "spirv"
    target_env: Literal["vulkan1.0", "vulkan1.1", "vulkan1.2", "vulkan1.3", "opengl"] = "vulkan1.0"
    stage: Annotated[
        Literal["vert", "frag", "comp", "geom", "tesc", "tese", "mesh", "task", "rgen", "rint", "rahit", "rchit", "rmiss", "rcall"]
        | None,
        Meta(
            description="stage of the shader; by default from the extension (a.frag), or the extension before .glsl or .hlsl "
            "(a.frag.glsl)"
        ),
    ] = None
    entry_point: Annotated[str, Meta(pattern=r"^[A-Za-z_]\w*(?!\n)$")] = "main"
    optimise: Literal["none", "speed", "size"] = "none"
    debug: Annotated[bool, Meta(description="keep the names of variables and the line numbers in the module")] = False
    defines: Annotated[dict[str, str | Number], Meta(description="macros to define, as {NAME: value}")] = {}
    variants: Annotated[
        dict[str, list[Annotated[str, Meta(pattern=r"^[\w.+-]{0,64}(?!\n)$")] | Number | None]],
        Meta(
            description="macros with several values, as {NAME: [values]}; each combination becomes a job; the value null leaves "
            "the macro undefined",
            extra_json_schema={"is_planning_only": True},
        ),
    ] = {}
    reflect: Annotated[bool, Meta(description="also write the bindings, inputs and constants of the shader as JSON")] = False
    cross: Annotated[
        list[Literal["essl100", "essl300", "essl310", "glsl330", "glsl450", "hlsl", "metal", "wgsl"]],
        Meta(description="also translate the module into these languages; needs spirv-cross, and naga for wgsl"),
    ] = []
    include_paths: Annotated[
        list[Name],
        Meta(description="folders (relative to the scan folder) in which #include searches after the folder of the including file"),
    ] = []
    compiler: Annotated[
        Name | None,
        Meta(
            description="name or path of the compiler; by default the first of glslangValidator, glslang and glslc that is "
            "installed",
            extra_json_schema={"is_trusted_only": True},
        ),
    ] = None


class ShaderBuilder(SourceBuilder):
    """Makes `<file name>.spv` of a shader. The job of a broken shader fails with a message such as `sky.frag:12: what is wrong`."""

    name: ClassVar[str] = "shader"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.vert", "*.frag", "*.comp", "*.geom", "*.tesc", "*.tese")
    analysis_fingerprint: ClassVar[str] = "1"
    params_schema: ClassVar[Any] = ShaderParams

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job per platform and variant; the programs that a job runs are part of its fingerprint."""
        response = one_job_per_platform(request, self.name, contradiction=_contradiction)
        paths: dict[str, None] = {}
        jobs = []
        for job in response.jobs:
            options: ShaderParams = request.options_for(job.platform)
            programs = [find_program(options.compiler, _list_compilers(request.source))]
            programs += [find_program(name, ()) for name in sorted({_CROSS[each][0] for each in options.cross})]
            job.additional_fingerprint = ", ".join(map(program_digest, programs))
            paths |= dict.fromkeys(list_included(request, options.include_paths))
            for macros in list_variants(options.variants):
                name = name_variant(macros)
                params = {"variant": name, "macros": json.dumps(macros)} if name else {}
                key = f"{job.job_key}.{name}" if name else job.job_key
                jobs.append(JobDescriptor(key, job.platform, additional_fingerprint=job.additional_fingerprint, params=params))
        response.jobs = jobs
        response.source_dependencies = declare_sources(request.scan_folder, filter_allowed(request, paths))
        return response

    def build(self, request: ProcessJobRequest) -> None:
        """Compile the source and write its products."""
        options: ShaderParams = request.options
        options = replace(options, defines={**options.defines, **json.loads(request.job_params.get("macros", "{}"))})
        data = request.read_source()
        if options.output == "spirv" and not data.removeprefix(codecs.BOM_UTF8).strip():
            raise SourceError("the file is empty; write the shader's program into it, or delete it")
        request.products += _compile_shader(data, options, request)


def _list_compilers(source: str) -> tuple[str, ...]:
    return ("slangc",) if source.lower().endswith(".slang") else COMPILERS


def list_variants(variants: Mapping[str, Sequence[str | int | None]]) -> list[dict[str, str | int]]:
    """Return the macros {name: value} of each variant, in the order of names and values.

    A macro with the value null is left out.
    """
    names = sorted(name for name in variants if variants[name])
    combinations = itertools.product(*(dict.fromkeys(variants[name]) for name in names))
    return [{name: value for name, value in zip(names, each, strict=True) if value is not None} for each in combinations]


def name_variant(macros: Mapping[str, str | int]) -> str:
    """Return the part of product names that distinguishes a variant, such as `FOG.LIGHTS-4`; "" without macros."""
    return ".".join(name if str(value) == "" else f"{name}-{value}" for name, value in sorted(macros.items()))


def list_included(
    request: CreateJobsRequest | ProcessJobRequest, include_paths: Sequence[str], *, refuses: bool = False
) -> list[str]:
    """Return the files that the source includes, directly or indirectly, and the paths searched for missing files.

    All paths are relative to the scan folder.

    Args:
        include_paths: folders in the scan folder in which includes are searched.
        refuses: whether an include outside the project, or one that cannot be parsed, is an error, because the compiler would
            read it.

    Raises:
        ForbiddenNameError, JobError: see `refuses`.
    """
    source = request.source
    seen = {source}
    named: dict[str, None] = {}
    todo = [source]
    while todo:
        file = todo.pop()
        try:
            text = _directives(read(request, file).decode("latin-1"))
        except NamedFileError:
            continue
        names = [[quoted or bracketed] for quoted, bracketed in _INCLUDE.findall(text)]
        if refuses and [""] in names:
            raise JobError(f"{file}: an #include has no file name in quotes or angle brackets")
        for alternatives in filter(any, [*names, *_list_imported(file, text)]):
            for path in (place for name in alternatives for place in _places(file, name, include_paths)):
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


def _list_imported(file: str, text: str) -> list[list[str]]:
    """Return the possible file names of each module that a Slang source imports."""
    if not file.lower().endswith(".slang"):
        return []
    found = []
    for quoted, dotted in _IMPORT.findall(text):
        path = quoted.removesuffix(".slang") or dotted.replace(".", "/")
        found.append(list(dict.fromkeys(f"{each}.slang" for each in (path, path.replace("_", "-")))))
    return found


def _directives(text: str) -> str:
    """Return a shader's text without comments, and with continued lines joined, as a preprocessor sees it."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\\\n", "")
    return _TEXT_OR_COMMENT.sub(lambda match: match[1] or " ", text)


def _places(file: str, name: str, include_paths: Sequence[str]) -> Iterator[str]:
    """Yield the paths where a compiler searches the included file `name`, in the compiler's order."""
    yield placed_name(file, name)
    for folder in include_paths:
        yield posixpath.normpath(posixpath.join(folder, name))


def _contradiction(params: Mapping[str, Any]) -> str:
    for name in params.get("defines") or {}:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            return f"{name!r} in parameter 'defines' is not a valid name of a macro"
    count = 1
    for name, values in (params.get("variants") or {}).items():
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            return f"{name!r} in parameter 'variants' is not a valid name of a macro"
        count *= max(1, len(values))
    if count > MOST_VARIANTS:
        return f"parameter 'variants' makes {count:,} variants; the limit is {MOST_VARIANTS:,}"
    names = [name_variant(each).lower() for each in list_variants(params.get("variants") or {})]
    if twice := next((name for name in names if names.count(name) > 1), None):
        return f"parameter 'variants' makes two variants with the name '{twice}'"
    return ""


def _stage(source: str, options: ShaderParams) -> str:
    if options.stage:
        return options.stage
    stem, extension = posixpath.splitext(source.lower())
    if extension in (".glsl", ".hlsl", ".slang"):
        extension = posixpath.splitext(stem)[1]
    if extension[1:] not in _SLANG_STAGES:
        raise ParamError(
            "the name of the file does not show the stage of the shader; set the parameter 'stage' to one of "
            f"{', '.join(_SLANG_STAGES)}"
        )
    return extension[1:]


def _compile_shader(data: bytes, options: ShaderParams, request: ProcessJobRequest) -> list[JobProduct]:
    compiler = find_program(options.compiler, _list_compilers(request.source))
    if not compiler:
        names = _list_compilers(request.source)
        requested = f"the program '{options.compiler or names[0]}' was not found" if options.compiler or len(names) == 1 else ""
        requested = requested or f"none of the programs {', '.join(names)} was found"
        package = "" if options.compiler or len(names) == 1 else "the package glslang-tools"
        raise MissingError(f"{requested}; install {package or 'it'}, or set the parameter 'compiler'")
    included = list_included(request, options.include_paths, refuses=True)
    for folder in options.include_paths:
        located(request.scan_folder, posixpath.normpath(f"{folder}/."), request.scan_folders, "the parameter 'include_paths'")
    family = next((each for each in _FAMILIES if each in os.path.basename(compiler).lower()), "glslang")
    spell, pattern = _FAMILIES[family]
    is_copy = options.output == "source"
    if is_copy and family != "glslang":
        raise MissingError(
            f"output: source needs the program glslangValidator, because {family} cannot check a shader without compiling it"
        )
    if is_copy and (options.cross or options.reflect or request.job_params.get("variant")):
        raise ParamError("'variants', 'reflect' and 'cross' need a compiled module; set output: spirv")
    variant = request.job_params.get("variant", "")
    base = os.path.basename(request.source) + (f".{variant}" if variant else "")
    name = base + ("" if is_copy else ".spv")
    path = request.product_path(name)
    if os.path.dirname(request.source).startswith("-"):
        raise ParamError(
            "the name of the source's folder begins with '-', so the compiler would read the path as an option; rename the folder"
        )
    # The path is relative, because compilers write the path into messages and debug information.
    source = request.source if not request.source.startswith("-") else f"./{request.source}"
    folder = _folder_without_marks(data, included, options.include_paths, request)

    def compile_to(target: str, changes: Mapping[str, Any], *, is_silent: bool = False) -> None:
        arguments = spell(replace(options, **changes), _stage(request.source, options), source, target)
        # Without a line `#version`, glslang checks a shader as OpenGL ES 1.00, with -d as OpenGL 1.10.
        flags = ["-d"] if is_copy and not _ES.search(data) else []
        ended = run_program([compiler, *flags, *arguments], folder)
        if flags and ended.status:  # a vertex shader of OpenGL ES may name no precision
            as_es = run_program([compiler, *arguments], folder)
            ended = ended if as_es.status else as_es
        output = _SLANGC_PLACE.sub(r"\2(\3): \1: ", ended.output) if family == "slangc" else ended.output
        _report(ended.status, messages(output, pattern), ended.output, request=request, is_silent=is_silent)
        if target and not os.path.isfile(target):
            raise JobError(f"{request.source}: the compiler ended without an error, but did not write the module")

    compile_to("" if is_copy else path, {})
    if is_copy:
        with open(path, "wb") as file:
            file.write(data)
        return [JobProduct(name, 0, SHADER_ASSET_TYPE)]
    products = [JobProduct(name, _sub_id(variant), SPIRV_ASSET_TYPE)]
    if options.reflect or options.cross:
        # The module is compiled again without optimisation, because optimisation removes names and unused bindings.
        named = os.path.join(request.temp_dir, "named.spv")
        compile_to(named, {"optimise": "none", "debug": True}, is_silent=True)
        products += _describe(named, base, options, request)
    return products


def _describe(named: str, base: str, options: ShaderParams, request: ProcessJobRequest) -> list[JobProduct]:
    """Write the interface of the module in the file `named`, and translate the module into other languages.

    Return the products that were written.
    """
    products = []
    if options.reflect:
        with open(named, "rb") as file:
            interface = reflect(file.read())
        with open(request.product_path(f"{base}.json"), "w", encoding="utf-8") as file:
            json.dump(interface, file, ensure_ascii=False, indent=1)
        products.append(JobProduct(f"{base}.json", _sub_id(f"{base}.json"), REFLECTION_ASSET_TYPE))
        nouns = {kind: kind.replace("_", " ").removesuffix("s") for kind in interface if kind != "entry_points"}
        counts = ", ".join(show_count(len(interface[kind]), noun) for kind, noun in nouns.items())
        request.log.info(f"{base}: {counts}")
    for language in options.cross:
        name = f"{base}.{language}"
        program, *arguments = _CROSS[language]
        output = [] if program == "naga" else ["--output"]
        made = os.path.join(request.temp_dir, f"made.{language}")  # naga chooses the language by the file extension
        try:
            request.run_program([program, named, *arguments, *output, made])
        except JobError as error:
            raise SourceError(one_line(error)) from None
        os.replace(made, request.product_path(name))
        products.append(JobProduct(name, _sub_id(name), SHADER_ASSET_TYPE))
    return products


def _sub_id(name: str) -> int:
    """Return the sub id of a product; `name` may contain bytes that are not UTF-8."""
    return zlib.crc32(os.fsencode(name))


def _folder_without_marks(data: bytes, included: Sequence[str], include_paths: Sequence[str], request: ProcessJobRequest) -> str:
    """Return the folder to compile in: the scan folder, or a copy without byte order marks if the shader or an include has one.

    Compilers read a byte order mark as a character of the program.
    """
    files = {request.source: data}
    for path in included:
        try:
            files[path] = read(request, path)
        except NamedFileError:
            continue  # a missing file has no byte order mark to remove
    marked = [path for path, text in files.items() if text.startswith(codecs.BOM_UTF8)]
    for path, text in files.items():
        if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise JobError(f"{path}:1:1: the file is UTF-16, which compilers do not read; save it as UTF-8")
    if not marked:
        return request.scan_folder
    if any(path.startswith(("../", "/")) for path in files):
        raise JobError(f"{marked[0]}:1:1: the file begins with a byte order mark; save it as UTF-8 without a byte order mark")
    folder = os.path.join(request.temp_dir, "without-marks")
    for path in include_paths:
        os.makedirs(os.path.join(folder, path), exist_ok=True)
    for path, text in files.items():
        place = os.path.join(folder, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(text.removeprefix(codecs.BOM_UTF8))
    return folder


def _glslang_arguments(options: ShaderParams, stage: str, source: str, product: str) -> list[str]:
    arguments = ["-S", stage]
    if product:
        arguments += ["--target-env", options.target_env, "-o", product]
        arguments += [{"none": "-Od", "speed": "", "size": "-Os"}[options.optimise], "-g" if options.debug else "-g0"]
    if source.lower().endswith(".hlsl"):
        arguments += ["-D", "-e", options.entry_point]
    elif options.entry_point != "main":
        arguments += ["--source-entrypoint", "main", "-e", options.entry_point]
    return [each for each in [*arguments, *_macros(options), source] if each]


def _glslc_arguments(options: ShaderParams, stage: str, source: str, product: str) -> list[str]:
    language = "hlsl" if source.lower().endswith(".hlsl") else "glsl"
    arguments = [
        f"-fshader-stage={stage}",
        "-x",
        language,
        f"--target-env={options.target_env}",
        _OPTIMISATIONS[options.optimise],
    ]
    if options.debug:
        arguments.append("-g")
    if options.entry_point != "main":
        arguments.append(f"-fentry-point={options.entry_point}")
    return [*arguments, *_macros(options), "-o", product, source]


def _dxc_arguments(options: ShaderParams, stage: str, source: str, product: str) -> list[str]:
    if stage not in _DXC_PROFILES:
        raise ParamError(f"dxc cannot compile a shader of the stage '{stage}'; set the parameter 'compiler' to another compiler")
    arguments = ["-spirv", "-T", _DXC_PROFILES[stage], "-E", options.entry_point, f"-fspv-target-env={options.target_env}"]
    arguments += [{"none": "-O0", "speed": "-O3", "size": "-O1"}[options.optimise], *(["-Zi"] if options.debug else [])]
    return [*arguments, *_macros(options), "-Fo", product, source]


def _slangc_arguments(options: ShaderParams, stage: str, source: str, product: str) -> list[str]:
    arguments = [source, "-target", "spirv", "-stage", _SLANG_STAGES[stage], "-entry", options.entry_point]
    arguments += [{"none": "-O0", "speed": "-O2", "size": "-O1"}[options.optimise], *(["-g"] if options.debug else [])]
    return [*arguments, *_macros(options), "-o", product]


_FAMILIES = {
    "glslc": (_glslc_arguments, _GLSLC_LINE),
    "dxc": (_dxc_arguments, _GLSLC_LINE),
    "slangc": (_slangc_arguments, _SLANGC_LINE),
    "glslang": (_glslang_arguments, _GLSLANG_LINE),
}
"""{part of a compiler's file name: (function that returns its arguments, pattern of its messages)}."""


def _macros(options: ShaderParams) -> list[str]:
    return [
        *(f"-D{name}={value}" for name, value in sorted(options.defines.items())),
        *(f"-I{folder}" for folder in options.include_paths),
    ]


def _report(status: int, found: Sequence[CompilerMessage], output: str, *, request: ProcessJobRequest, is_silent: bool) -> None:
    """Log the compiler's messages, and raise its first error if it failed; with `is_silent`, do not log warnings."""
    found = [each for each in found if not _SUMMARY.match(each.text)]
    for message in found:
        if not message.is_error and not is_silent:
            request.log.warning(_format_placed(message, request.source))
    # Errors without a line are left out if other errors have a line, because the linker only repeats a failure of the compiler.
    wrong = [each for each in found if each.is_error]
    errors = [_format_placed(each, request.source) for each in [each for each in wrong if each.where] or wrong]
    if status == 0:
        return
    if not errors:
        ended = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise JobError(
            f"{request.source}: the compiler {ended}: {one_line(output[-400:]) if output.strip() else 'it printed nothing'}"
        )
    for text in errors[1:]:
        request.log.error(text)
    raise JobError(summarize_errors(errors))


def _format_placed(message: CompilerMessage, source: str) -> str:
    file, colon, line = message.where.rpartition(":")
    # If glslang only checks a shader, its messages give the source the file name "0".
    place = f"{source if file == '0' else file}{colon}{line}".removeprefix("./")
    return f"{place or source}: {message.text}"
