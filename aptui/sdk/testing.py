"""Runs a builder in a test without an engine, on files in a temporary folder, and returns products, dependencies, log and facts.

    def test_words_are_shouted(tmp_path):
        bench = BuilderBench(Shout(), tmp_path)
        bench.write("a.words", "hello")
        assert bench.build("a.words") == {"a.txt": b"HELLO"}

Tests: `tests/sdk/test_kit.py`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from aptui.core.patterns import wildcard
from aptui.sdk import (
    Builder,
    CreateJobsRequest,
    CreateJobsResponse,
    JobDescriptor,
    JobError,
    JobLog,
    JobProduct,
    MatchedFile,
    NamedFileError,
    ParamError,
    PlatformInfo,
    ProcessJobRequest,
    ProcessJobResponse,
    Result,
    find_missing_need,
)

__all__ = ["BuilderBench"]

_REFUSED = (JobError, NamedFileError, ParamError)
_WARNING, _ERROR = 2, 3


class BuilderBench:
    """Runs the jobs of one builder.

    Args:
        builder: an instance of the builder's class.
        folder: an empty folder; the sources are below its `assets`.
        name: the builder's name in the configuration; the name of the class by default.
        platforms: platform ids.

    `lines` are the logged lines, (severity 0 debug … 3 error, text); `progress` are the fractions that the builder reported;
    `products` are the products of the last run, and `products_dir` is their folder.
    """

    def __init__(
        self, builder: Builder, folder: Path | str, *, name: str = "", platforms: tuple[str, ...] = ("linux", "server")
    ) -> None:
        self.builder, self.folder = builder, Path(folder)
        self.name, self.platforms = name or builder.name, platforms
        self.lines: list[tuple[int, str]] = []
        self.progress: list[float] = []
        self.products: list[JobProduct] = []
        self.products_dir = self.folder
        self._runs = 0
        (self.folder / "assets").mkdir(parents=True, exist_ok=True)

    @property
    def errors(self) -> list[str]:
        """The errors that the builder logged."""
        return [text for severity, text in self.lines if severity == _ERROR]

    @property
    def warnings(self) -> list[str]:
        """The warnings that the builder logged."""
        return [text for severity, text in self.lines if severity == _WARNING]

    def write(self, source: str, data: bytes | str) -> str:
        """Write a file into the scan folder and return its relative path."""
        path = self.folder / "assets" / source
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return source

    def analyse(
        self,
        source: str,
        params: Mapping[str, Any] | None = None,
        platform_params: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> CreateJobsResponse:
        """Call `create_jobs` and return the builder's answer, also if it failed; `platform_params` has platform ids as keys."""
        request = CreateJobsRequest(
            builder_name=self.name,
            scan_folder=str(self.folder / "assets"),
            source=source,
            source_uuid=UUID(int=1),
            platforms=tuple(map(PlatformInfo, self.platforms)),
            params=params or {},
            platform_params=platform_params or {},
            log=self._log(),
            params_schema=getattr(self.builder, "params_schema", None),
            find_matches=self._find_matches,
        )
        try:
            self._check_needs()
            response = self.builder.create_jobs(request)
        except _REFUSED as error:
            return CreateJobsResponse(error=str(error))
        declared = {id(each): each for each in (*response.source_dependencies, *request.source_dependencies)}
        response.source_dependencies = list(declared.values())
        return response

    def dependencies(self, source: str, **params: Any) -> list[str]:
        """Analyse `source`, which must succeed, and return the declared paths and patterns."""
        response = self.analyse(source, params)
        assert response.result is Result.SUCCESS, response.error
        return [each.path for each in response.source_dependencies]

    def process(
        self, source: str, platform: str = "", *, is_draft: bool = False, job: JobDescriptor | None = None, **params: Any
    ) -> ProcessJobResponse:
        """Call `process_job` and return the builder's answer, also if it failed.

        Args:
            source: relative path.
            platform: id of the platform; the first platform by default.
            is_draft: make the draft (`request.quality`).
            job: one of the jobs that `analyse` returned; needed if the builder has several jobs per platform.
            params: the builder's parameters.
        """
        self._runs += 1
        self.products_dir, temp = (self.folder / f"{kind}{self._runs}" for kind in ("products", "temp"))
        self.products_dir.mkdir()
        temp.mkdir()
        request = ProcessJobRequest(
            builder_name=self.name,
            scan_folder=str(self.folder / "assets"),
            source=source,
            source_uuid=UUID(int=1),
            platform=PlatformInfo(platform or self.platforms[0]),
            job_key=job.job_key if job else self.name,
            params=params,
            job_params=job.params if job else {},
            additional_fingerprint="",
            products_dir=str(self.products_dir),
            temp_dir=str(temp),
            log=self._log(),
            quality="draft" if is_draft else "final",
            progress=self.progress.append,
            params_schema=getattr(self.builder, "params_schema", None),
            find_matches=self._find_matches,
        )
        try:
            self._check_needs()
            response = self.builder.process_job(request)
        except _REFUSED as error:
            return ProcessJobResponse(error=str(error))
        self.products = response.products
        return response

    def build(self, source: str, platform: str = "", **params: Any) -> dict[str, bytes]:
        """Run a job that must succeed and return {name: bytes} of its products.

        The job must not write other files into the products folder.
        """
        response = self.process(source, platform, **params)
        assert response.result is Result.SUCCESS, response.error
        names = sorted(os.path.relpath(self.products_dir / each.path, self.products_dir) for each in response.products)
        assert names == sorted(path.name for path in self.products_dir.iterdir()), (
            "the declared products differ from the files in the product folder"
        )
        return {name: (self.products_dir / name).read_bytes() for name in names}

    def fail(self, source: str, platform: str = "", **params: Any) -> str:
        """Run a job that must fail, and return its error, which must be one line, and must not contain a path of this machine."""
        response = self.process(source, platform, **params)
        assert response.result is Result.FAILED, response.result
        assert response.error
        assert "\n" not in response.error
        assert str(self.folder) not in response.error
        return response.error

    def _log(self) -> JobLog:
        return JobLog(lambda severity, text, _context: self.lines.append((severity, text)))

    def _check_needs(self) -> None:
        if fault := find_missing_need(self.builder):
            raise JobError(f"builder '{self.name}': {fault}")

    def _find_matches(self, pattern: str) -> list[MatchedFile]:
        root = self.folder / "assets"
        match = wildcard(pattern).fullmatch
        found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
        return [
            MatchedFile(rel, str(path), hashlib.sha256(path.read_bytes()).hexdigest())
            for rel, path in sorted(found.items())
            if match(rel)
        ]
