"""Reads the project that is bundled: its platforms, products in the asset database, default seeds, and paths of files.

Tests: `tests/features/o3de/programs/test_asset_bundler_batch.py`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TextIO

from msgspec import Struct

from aptui.config.configuration import Config
from aptui.config.dirs import asset_database
from aptui.core.paths import os_path
from aptui.core.patterns import wildcard
from aptui.features.o3de.binary_stream import RegistryAsset, type_text
from aptui.features.o3de.bundling import object_stream, seeds
from aptui.features.o3de.bundling.bundle_files import LIST_SUFFIX, ListedAsset, list_text, unreadable_product
from aptui.features.o3de.bundling.seeds import Seed, SeedList
from aptui.features.o3de.programs.bundler_switches import BundlerSwitches
from aptui.features.o3de.project_facts import ProjectFacts, facts_of
from aptui.shared.errors import HostError, KnownError, UserError
from aptui.shared.files.replacing import replace_bytes
from aptui.shared.printing import sanitize

# `BundlerOutput` prints the lines of `AssetBundlerBatch` and writes its files.


class BundlerOutput:
    """Prints the lines and writes the files of one command."""

    def __init__(self, stream: TextIO) -> None:
        self.is_verbose = False
        self._stream = stream

    def say(self, text: str) -> None:
        """Print a line."""
        self._stream.write("\t".join(map(sanitize, text.split("\t"))) + "\n")
        self._stream.flush()

    def say_all(self, texts: Iterable[str]) -> None:
        """Print several lines."""
        for text in texts:
            self.say(text)

    def warn(self, text: str) -> None:
        """Print a warning."""
        self.say(f"WARNING: {text}")

    def complain(self, error: KnownError) -> None:
        """Print an error."""
        self.say(f"ERROR: {error}")

    def print_assets(self, platform: str, assets: Iterable[ListedAsset]) -> None:
        """Print the assets of a list."""
        listed = list(assets)
        self.say(f"Printing assets for Platform ( {platform} ):")
        self.say_all(f"- {item.path}" for item in listed)
        self.say(f"Total number of assets for Platform ( {platform} ): {len(listed)}.")

    @staticmethod
    def refuse_overwriting(paths: Iterable[Path], *, is_allowed: bool) -> None:
        """Refuse to overwrite existing files, before anything is written.

        Raises:
            UserError: a file exists, and --allowOverwrites was not given.
        """
        there = [path for path in paths if path.exists()]
        if there and not is_allowed:
            raise UserError(f"'{there[0]}' exists already", hint="add --allowOverwrites to overwrite it")

    def save(self, path: Path, text: str, kind: str) -> None:
        """Write a file, and print O3DE's line about a file of this `kind`."""
        self.say(f"Saving {kind} to ( {path} )...")
        self.write(path, text)
        self.say("Save successful!")

    def save_lists(self, lists: Mapping[Path, Sequence[ListedAsset]], *, is_quiet: bool = False) -> None:
        """Write the asset lists that are not empty. Then raise an error if a list is empty.

        Raises:
            UserError: a list is empty, so its bundle would be empty, too.
        """
        errors = [UserError(f"Unable to save Asset List file ({path}): list is empty.") for path in lists if not lists[path]]
        for path, assets in lists.items():
            if assets and is_quiet:
                self.write(path, list_text(assets))
            elif assets:
                self.save(path, list_text(assets), "Asset List file")
        for error in errors[:-1]:
            self.complain(error)
        if errors:
            raise errors[-1]

    def write(self, path: Path, text: str) -> None:
        """Write a file atomically.

        Raises:
            HostError: the file cannot be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HostError(
                f"'{path.parent}' cannot be created: {error.strerror}", hint="check the permissions of the folder above it"
            ) from error
        replace_bytes(path, text.encode("utf-8", "surrogateescape"), what=f"'{path}'")
        if self.is_verbose:
            self.say(f"Written: {path}")


_DEPENDENCY = re.compile(r"<Dependency\s(?P<attributes>[^<>]*)/?>")
_ATTRIBUTE = re.compile(r"""(\w+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
AssetKey = tuple[str, int]
"""Key of an asset: (UUID of its source in braces and upper case, sub id)."""


class PlatformProducts(Struct, frozen=True):
    """All products of one platform that a runtime can load."""

    platform: str
    folder: Path
    assets: Mapping[AssetKey, RegistryAsset]
    by_path: Mapping[str, AssetKey]

    def _path_of(self, word: str) -> str:
        """Return a path on the command line relative to the platform's folder, in lower case."""
        path = word.replace("\\", "/").lower()
        for cache in (self.folder.parent, self.folder.parent.resolve()):
            if path.startswith(f"{cache}/".lower()):
                path = path[len(f"{cache}/") :].partition("/")[2]  # keep only the part after `<cache>/<platform>/`
        return path.removeprefix(f"{self.platform}/")

    def find_named(self, word: str) -> list[AssetKey]:
        """Return the products that match `word`, a path or pattern relative to the platform's folder, or absolute in the cache."""
        path = self._path_of(word)
        if path in self.by_path:
            return [self.by_path[path]]
        if not ("*" in path or "?" in path):
            return []
        match = wildcard(path).fullmatch
        return [key for name, key in self.by_path.items() if match(name)]

    def find_seeds(self, word: str) -> list[AssetKey]:
        """Return the products that `word` names as in `find_named`; here only `**` matches products in folders below, too."""
        found = self.find_named(word)
        if "**" in word or "*" not in word:
            return found
        depth = self._path_of(word).count("/")
        return [key for key in found if self.assets[key].path.count("/") == depth]

    def closure(self, starts: Iterable[AssetKey], skipped: Sequence[str]) -> dict[AssetKey, AssetKey | None]:
        """Return the start products and their transitive dependencies, without `skipped`.

        The result is {product: product that needs it, None for a start product}.
        """
        left_out = {key for word in skipped for key in self.find_named(word)}
        reached: dict[AssetKey, AssetKey | None] = {}
        todo: list[tuple[AssetKey, AssetKey | None]] = [(key, None) for key in starts]
        while todo:
            ahead: list[tuple[AssetKey, AssetKey | None]] = []
            for key, reason in todo:
                if key in reached or key in left_out or key not in self.assets:
                    continue
                reached[key] = reason
                ahead += [((type_text(uuid), sub_id), key) for uuid, sub_id, _flags in self.assets[key].needs]
            todo = ahead
        return reached

    def file_of(self, key: AssetKey) -> Path:
        """Return the file of a product."""
        return self.folder / os_path(self.assets[key].path)

    def list_assets(self, keys: Iterable[AssetKey]) -> list[ListedAsset]:
        """Return the entries of an asset list for these products.

        Raises:
            HostError: a product cannot be read.
        """
        found = []
        for key in keys:
            path = self.file_of(key)
            try:
                with path.open("rb") as file:
                    digest, seconds = hashlib.file_digest(file, "sha1").digest(), int(os.fstat(file.fileno()).st_mtime)
            except OSError as error:
                raise unreadable_product(path, error) from error
            found.append(ListedAsset(*key, self.assets[key].path, seconds, digest))
        return found


class BundlerProject:
    """The project that one command works on: its platforms, products and files."""

    def __init__(self, config: Config, given: BundlerSwitches) -> None:
        self.config, self._given = config, given
        self.facts = facts_of(config) or ProjectFacts()
        self._products: dict[str, PlatformProducts] = {}

    @cached_property
    def enabled(self) -> tuple[str, ...]:
        """The platforms that are enabled in the project."""
        return tuple(platform.id for platform in self.config.project.platforms if platform.id != "common")

    @property
    def asked(self) -> tuple[str, ...]:
        """Return the platforms that the command line names.

        Raises:
            UserError: the project does not declare one of these platforms.
        """
        known = {*self.config.project.declared_platforms, *self.enabled}
        for name in self._given.all("platform"):
            if name.lower() not in known:
                raise UserError(
                    f"'{name}' is not a platform of the project", hint=f"the platforms are {', '.join(sorted(self.enabled))}"
                )
        return tuple(dict.fromkeys(name.lower() for name in self._given.all("platform")))

    @property
    def platforms(self) -> tuple[str, ...]:
        """Return the platforms that the command line names, by default all enabled platforms."""
        return self.asked or self.enabled

    def platforms_of(self, *names: str) -> tuple[str, ...]:
        """Return the platforms of a command. If the names of its input files contain a platform, return only this platform.

        Raises:
            UserError: the files are for different platforms, or for platforms that the command line does not name.
        """
        platforms = {platform for name in names if not name.startswith("$") and (platform := platform_of(name))}
        if len(platforms) > 1:
            raise UserError(
                f"the files are for different platforms: {', '.join(sorted(platforms))}",
                hint="use input files for one platform only",
            )
        if platforms and self.asked and not platforms.issubset(self.asked):
            raise UserError(
                f"the file is for platform '{next(iter(platforms))}', but --platform is {', '.join(self.asked)}",
                hint="name another file, or correct --platform",
            )
        return tuple(platforms) or self.platforms

    def platforms_with(self, name: str, suffix: str, *names: str) -> tuple[str, ...]:
        """Return the platforms of a command; by default those for which the input file `name` exists, or all if none exists."""
        platforms = self.platforms_of(name, *names)
        found = [each for each in platforms if self.existing(for_platform(name, each), suffix).exists()] if name else []
        return platforms if self.asked else tuple(found) or platforms

    # ------------------------------------------------------------------------------------------------------------- products

    def products(self, platform: str) -> PlatformProducts:
        """Return the products of a platform.

        Raises:
            UserError: nothing was processed yet.
        """
        if platform not in self._products:
            self._products[platform] = self._read(platform)
        return self._products[platform]

    def _read(self, platform: str) -> PlatformProducts:
        from aptui.store.queries.dependencies import catalog_rows
        from aptui.store.queries.reader import open_reader

        database = asset_database(self.config.cache_dir)
        if not database.is_file():
            what = f"the project was not processed yet: its asset database '{database}' does not exist"
            raise UserError(what, hint="run 'AssetProcessorBatch' first")
        with closing(open_reader(database)) as reader, reader.snapshot():
            assets = [registry_asset(*row) for row in catalog_rows(reader, platform)]
        by_key = {(type_text(item.uuid), item.sub_id): item for item in assets}
        folder = self.config.cache_dir / platform
        return PlatformProducts(platform, folder, by_key, {item.path: key for key, item in by_key.items()})

    # ---------------------------------------------------------------------------------------------------------------- seeds

    def default_seed_lists(self) -> list[Path]:
        """Return the seed lists of engine, gems and project; in their folders `Platforms`, those of the command's platforms."""
        engine = Path(self.facts.engine) / "Assets" / "Engine"
        names: list[Path] = []
        for folder, name in ((engine, "SeedAssetList"), *((Path(path) / "Assets", "seedList") for _name, path in self.facts.gems)):
            names += [folder / f"{name}{seeds.SUFFIX}", *sorted((folder / "Platforms").glob(f"*{seeds.SUFFIX}"))]
            for platform in self.platforms:
                names += sorted((folder / "Platforms" / platform).rglob(f"*{seeds.SUFFIX}"))
        names.append(self.config.project_dir / f"SeedAssetList{seeds.SUFFIX}")
        return [path for path in dict.fromkeys(names) if path.is_file()]

    def default_dependencies(self, products: PlatformProducts) -> tuple[list[AssetKey], list[str]]:
        """Return the products in the `*_Dependencies.xml` files of engine, gems and project.

        Also return messages about missing products that these files require.
        """
        engine, project = Path(self.facts.engine), self.config.project_dir
        files = [engine / "Assets" / "Engine" / "Engine_Dependencies.xml"]
        files += [Path(path) / "Assets" / f"{name}_Dependencies.xml" for name, path in self.facts.gems]
        files += [project / f"{self.config.name}_Dependencies.xml"]
        found: dict[AssetKey, None] = {}
        missing: list[str] = []
        for path in files:
            if not path.is_file():
                continue
            entries = list(_dependencies(path))
            without = {key for name, _is_optional in entries if name.startswith(":") for key in products.find_named(name[1:])}
            for name, is_optional in entries:
                keys = [] if name.startswith(":") else products.find_named(name)
                found.update(dict.fromkeys(key for key in keys if key not in without))
                if not keys and not is_optional and not name.startswith(":"):
                    missing.append(f"{path.name} names '{name}', which is not a product of platform '{products.platform}'")
        return list(found), missing

    # ---------------------------------------------------------------------------------------------------------------- files

    def path(self, name: str, suffix: str) -> Path:
        """Return the absolute path of a file on the command line; relative paths are below the engine's folder.

        Raises:
            UserError: the path does not end with `suffix`.
        """
        name = name.replace("\\", "/")
        if not name.lower().endswith(suffix):
            raise UserError(f"'{name}' does not end with {suffix}", hint=f"name a {suffix} file")
        return Path(os.path.normpath(os.path.join(self.facts.engine or os.getcwd(), name)))

    def existing(self, name: str, suffix: str) -> Path:
        """Return the path of an input file: in the engine's folder, or in the current folder if the file exists only there."""
        path = self.path(name, suffix)
        here = Path(os.path.abspath(name.replace("\\", "/")))
        return here if not path.exists() and here.exists() else path

    def portable_path(self, path: Path) -> str:
        """Return a path as settings store it: relative to the engine's folder if it is below, so that other machines find it."""
        engine = self.facts.engine
        return str(path.relative_to(engine)) if engine and path.is_relative_to(engine) else str(path)

    def asset_list(self, name: str, platform: str) -> Path:
        """Return the path of the asset list of a platform.

        Raises:
            UserError: the asset list does not exist.
        """
        path = self.existing(for_platform(name, platform), LIST_SUFFIX)
        if not path.exists():
            raise missing_list(self.path(name, LIST_SUFFIX), f" For platform '{platform}' it is '{path.name}'")
        return path

    def seed_list(self, name: str) -> SeedList:
        """Return a seed list.

        Raises:
            UserError: the file does not exist, or is not a seed list.
        """
        path = self.existing(name, seeds.SUFFIX)
        if not path.exists():
            raise UserError(f"Cannot load Seed List file ( {path} ): File does not exist.")
        return SeedList.load(path)


def platform_of(name: str) -> str:
    """Return the platform in the name of a file (`list_pc.assetlist`), or ""."""
    stem = os.path.basename(name.replace("\\", "/")).rpartition(".")[0]
    last = stem.rpartition("_")[2].lower()
    return last if "_" in stem and last in seeds.PLATFORMS else ""


def missing_list(path: Path, more: str = "") -> UserError:
    """Return the error for an asset list that does not exist; its text is that of O3DE."""
    return UserError(f"Cannot load Asset List file ( {path} ): File does not exist.{more}")


def refuse_missing_lists(given: BundlerSwitches) -> None:
    """Check the asset lists of the command `bundles`. Unlike later checks, this check does not need a project.

    Raises:
        UserError: neither a list nor its variant for a platform exists.
    """
    for name in given.all("assetListFile") if given.command == "bundles" else ():
        path = Path(os.path.abspath(name.replace("\\", "/")))
        if not any(map(os.path.exists, (str(path), *(for_platform(str(path), platform) for platform in seeds.PLATFORMS)))):
            raise missing_list(path)


def for_platform(name: str, platform: str) -> str:
    """Return the name of a file for one platform."""
    stem, dot, suffix = name.rpartition(".")
    return name if platform_of(name) else f"{stem}_{platform}{dot}{suffix}"


def applying(listed: Iterable[Seed], products: PlatformProducts) -> tuple[list[AssetKey], list[str]]:
    """Return the products of seeds on a platform, and a message for each seed without a product."""
    found: list[AssetKey] = []
    missing: list[str] = []
    for seed in listed:
        if not seeds.is_for(seed.flags, products.platform):
            continue
        if (seed.guid, seed.sub_id) in products.assets:
            found.append((seed.guid, seed.sub_id))
        else:
            missing.append(f"seed {seed.guid}:{seed.sub_id:x} ('{seed.hint}') has no product for platform '{products.platform}'")
    return found, missing


def registry_asset(
    uuid: bytes, sub_id: int, name: str, kind: bytes, size: int, _digest: bytes, needs: str | None, former: str | None
) -> RegistryAsset:
    """Return a row of the database as an entry of the runtime's catalog."""
    words = needs.split() if needs else []
    wanted = tuple(
        (bytes.fromhex(guid), int(sub), int(flags)) for guid, sub, flags in zip(words[::3], words[1::3], words[2::3], strict=True)
    )
    legacy = tuple(map(int, former.split())) if former else ()
    return RegistryAsset(uuid, sub_id, name.partition("/")[2], kind, size, wanted, legacy)


def _dependencies(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield (path, whether it is optional) from a file of default dependencies."""
    try:
        text = path.read_text("utf-8", "surrogateescape")[: object_stream.MOST_BYTES]
    except OSError as error:
        raise HostError(f"'{path}' cannot be read: {error.strerror}", hint="check its permissions") from error
    for match in _DEPENDENCY.finditer(_COMMENT.sub("", text)):
        given = {name: one or other for name, one, other in _ATTRIBUTE.findall(match["attributes"])}
        if given.get("path"):
            yield given["path"].strip(), given.get("optional", "false").lower() in ("true", "1")
