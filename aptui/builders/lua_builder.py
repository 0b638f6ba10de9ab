"""The `lua` builder: checks the syntax of Lua scripts, and writes them as they are or as bytecode.

Bytecode comes from a `luac` program if it is installed, otherwise from the Lua in the package lupa; neither runs the
script. Bytecode runs only with the same version of Lua, width of pointers and numbers, and byte order, so the
parameter `version` must be the game's version of Lua.
"""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from msgspec import Meta, Struct

from aptui.builders.common import SourceBuilder, SourceError, one_job_per_platform, one_line
from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    MissingError,
    ProcessJobRequest,
    find_program,
    has_library,
    library,
    library_versions,
    program_digest,
    run_program,
)

LUA_ASSET_TYPE = UUID("a90d3e52-7c14-5f6b-92e8-05d4c7b1fa07")
"""Asset type of a Lua script as source text."""

BYTECODE_ASSET_TYPE = UUID("f2386b0c-d95e-5147-b3a6-6e91d80c2b08")

_MODULES = {
    "5.1": "lupa.lua51",
    "5.2": "lupa.lua52",
    "5.3": "lupa.lua53",
    "5.4": "lupa.lua54",
    "5.5": "lupa.lua55",
    "luajit": "lupa.luajit21",
}
_SIGNATURE = b"\x1bLua"
_PLACE = re.compile(r"^(?:[^:]*luac[^:]*: )?(?P<file>.*?):(?P<line>\d+): (?P<text>.*)$", re.DOTALL)

_LOAD = """
local compile = loadstring or load
return function(text, name, how, is_dumped)
  local script, message = compile(text, name)
  if not script then return nil, message end
  if is_dumped then return string.dump(script, how) end
  return ""
end
"""


class LuaParams(Struct, frozen=True, kw_only=True):
    """Parameters of this builder; the documentation and `aptui explain` show the descriptions of the fields."""

    compile: Annotated[
        Literal["auto", "bytecode", "check"],
        Meta(
            description="bytecode: compile; check: only check the syntax, and copy the script; auto: bytecode if luac is "
            "installed, else check"
        ),
    ] = "auto"
    version: Annotated[Literal["5.1", "5.2", "5.3", "5.4", "5.5", "luajit"], Meta(description="version of Lua")] = "5.4"
    luac: Annotated[
        Annotated[str, Meta(pattern=".+")] | None,
        Meta(
            description="name or path of the compiler; by default the luac for `version`",
            extra_json_schema={"is_trusted_only": True},
        ),
    ] = None
    strip: Annotated[bool, Meta(description="leave names of variables and line numbers out of the bytecode")] = False


class LuaBuilder(SourceBuilder):
    """Checks or compiles a script. The job of a broken script fails with a message such as `file.lua:12: what is wrong`."""

    name: ClassVar[str] = "lua"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.lua",)
    analysis_fingerprint: ClassVar[str] = library_versions("lupa")
    params_schema: ClassVar[Any] = LuaParams

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job per platform; the compiler is part of its fingerprint."""
        response = one_job_per_platform(request, self.name)
        for job in response.jobs:
            options: LuaParams = request.options_for(job.platform)
            job.additional_fingerprint = f"{self.analysis_fingerprint}, {program_digest(_compiler(options))}"
        return response

    def build(self, request: ProcessJobRequest) -> None:
        """Check the source and write its one product, which has the name of the source."""
        options: LuaParams = request.options
        product, asset_type = _product(request.read_source(), options, request)
        request.write_product(os.path.basename(request.source), product, sub_id=0, asset_type=asset_type)


def can_compile() -> bool:
    """Return whether this machine has lupa or a `luac` program, and so can check scripts."""
    return has_library("lupa") or bool(_compiler(LuaParams()))


def _compiler(options: LuaParams) -> str:
    """Return the path of the `luac` program that the parameters name, "" if it is not found."""
    version = options.version
    if version == "luajit" and not options.luac:
        return ""
    return find_program(options.luac, (f"luac{version}", f"luac{version.replace('.', '')}"))


def _product(data: bytes, options: LuaParams, request: ProcessJobRequest) -> tuple[bytes, UUID]:
    """Return (bytes, asset type) of the product."""
    if data.startswith(_SIGNATURE):
        raise SourceError("the file is already bytecode, not a script")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError("the file is UTF-16, which Lua does not read; save it as UTF-8", "1")
    compiler = _compiler(options)
    if options.luac and not compiler:
        raise MissingError(
            f"the program '{options.luac}', which the parameter 'luac' names, was not found; install it, or change the parameter"
        )
    is_bytecode = options.compile == "bytecode" or (options.compile == "auto" and bool(compiler))
    if compiler and (is_bytecode or not has_library("lupa")):
        made = _by_program(compiler, options, request, is_dumped=is_bytecode)
    elif has_library("lupa"):
        made = _by_library(data, options, request, is_dumped=is_bytecode)
    else:
        raise MissingError(
            f"Lua is not installed; install the Python package 'lupa' (pip install lupa) or the system package lua{options.version}"
        )
    return (made, BYTECODE_ASSET_TYPE) if is_bytecode else (data, LUA_ASSET_TYPE)


def _by_library(data: bytes, options: LuaParams, request: ProcessJobRequest, *, is_dumped: bool) -> bytes:
    lupa = library(_MODULES[options.version], "lupa")
    runtime = lupa.LuaRuntime(encoding=None, register_eval=False, register_builtins=False, unpack_returned_tuples=True)
    compile_ = runtime.execute(_LOAD)
    # Remove a first line such as `#!/usr/bin/lua`, because only the program `lua` accepts such a line. The line end stays, so that
    # the other lines keep their numbers.
    text = re.sub(rb"\A(?:\xef\xbb\xbf)?#[^\r\n]*", b"", data).removeprefix(b"\xef\xbb\xbf")
    # The option `d` is set, because without `d` LuaJIT writes constant tables in random order.
    how = (b"sd" if options.strip else b"d") if options.version == "luajit" else options.strip
    made = compile_(text, b"=" + os.fsencode(request.source), how, is_dumped)
    if isinstance(made, tuple):
        raise _as_broken(made[1].decode("utf-8", "replace"))
    return bytes(made)


def _by_program(compiler: str, options: LuaParams, request: ProcessJobRequest, *, is_dumped: bool) -> bytes:
    product = os.path.join(request.temp_dir, "luac.out")
    mode = ["-o", product, *(["-s"] if options.strip else [])] if is_dumped else ["-p"]
    # The path is relative, because luac writes the path into the bytecode. `./` is put before a leading `-`, because luac would
    # read the path as an option.
    source = f"./{request.source}" if request.source.startswith("-") else request.source
    ended = run_program([compiler, *mode, "--", source], request.scan_folder)
    if ended.status != 0:
        raise _as_broken(ended.output.strip())
    if not is_dumped:
        return b""
    with open(product, "rb") as file:
        return file.read()


def _as_broken(message: str) -> SourceError:
    message = message.partition("\nstack traceback:")[0]
    if "stack overflow" in message:
        return SourceError("the script is nested too deeply for Lua")
    # Lua shortens long file names in its messages, so only the line number is used.
    match = _PLACE.match(message)
    if match is None:
        return SourceError(one_line(message) if message else "the script does not compile")
    return SourceError(one_line(match["text"]), match["line"])
