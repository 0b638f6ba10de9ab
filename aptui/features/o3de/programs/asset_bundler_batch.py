"""`AssetBundlerBatch`: makes seed lists, asset lists, comparisons and bundles, with O3DE's command line.

The program reads aptui's asset database with the results of earlier processing. It writes only its own files, not the cache.
`bundler_switches` defines the commands.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from aptui.features.o3de.bundling import bundle_files, seeds
from aptui.features.o3de.bundling.bundle_files import (
    BUNDLE_SUFFIX,
    BUNDLE_VERSIONS,
    LIST_SUFFIX,
    MOST_MIB,
    SETTINGS_SUFFIX,
    BundleSettings,
    ListedAsset,
    PackedAsset,
    load_list,
)
from aptui.features.o3de.bundling.seeds import Seed, SeedList
from aptui.features.o3de.programs import bundler_comparisons, bundler_switches, program_switches, run_request
from aptui.features.o3de.programs.bundler_project import (
    AssetKey,
    BundlerOutput,
    BundlerProject,
    PlatformProducts,
    applying,
    for_platform,
    refuse_missing_lists,
)
from aptui.features.o3de.programs.bundler_switches import HELP, BundlerSwitches
from aptui.features.o3de.programs.phrases import BATCH
from aptui.shared import printing
from aptui.shared.errors import KnownError, UserError

FAILED = 1
Command = Callable[[BundlerSwitches, BundlerProject, BundlerOutput], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `AssetBundlerBatch` and return its exit code: 0 if everything succeeded, else 1."""
    printing.prepare()
    output = BundlerOutput(sys.stdout)
    try:
        given = bundler_switches.parse(sys.argv[1:] if arguments is None else arguments)
        if given.command == "help" or given.has("help"):
            output.say_all(bundler_switches.help_lines(given.command))
            return 0
        output.say_all(given.notes)
        output.is_verbose = given.has("verbose")
        try:
            project = _project(given)
        except KnownError:
            refuse_missing_lists(given)
            raise
        _COMMANDS[given.command](given, project, output)
    except KnownError as error:
        for each in getattr(error, "errors", (error,)):
            output.complain(each)
        return FAILED
    return 0


def _project(given: BundlerSwitches) -> BundlerProject:
    names = [name for name in bundler_switches.PROJECT if name not in ("verbose", "help")]
    words = [f"--{name}={value}" for name in names for value in given.all(name)]
    return BundlerProject(run_request.load(program_switches.parse(words), BATCH), given)


# ------------------------------------------------------------------------------------------------------------------- seeds


def _seeds(given: BundlerSwitches, project: BundlerProject, output: BundlerOutput) -> None:
    path = project.path(given.need_switch("seedListFile"), seeds.SUFFIX)
    changes = [f"--{name}" for name in ("addPlatformToSeeds", "removePlatformFromSeeds") if given.has(name)]
    if len(changes) > 1:
        raise UserError(f"{' and '.join(changes)} cannot be used together", hint="run the program once for each")
    if changes and not project.asked:
        raise UserError(f"{changes[0]} needs --platform", hint="give platforms, as in --platform=pc,server")
    listed = SeedList.load(path) if path.exists() else SeedList()
    before = listed.text() if path.exists() else None
    products = {platform: project.products(platform) for platform in project.platforms}
    _add_seeds(listed, given.all("addSeed"), products)
    _remove_seeds(listed, given.all("removeSeed"), products, output)
    if given.has("addPlatformToSeeds"):
        _add_platforms(listed, products, output)
    if given.has("removePlatformFromSeeds"):
        _remove_platforms(listed, project.platforms, output)
    if given.has("updateSeedPath"):
        _update_paths(listed, products)
    if given.has("removeSeedPath"):
        for seed in listed.seeds:
            listed.set(seed, hint="")
    if given.has("print"):
        for seed in listed.seeds:
            output.say(f"{seed.guid}:{seed.sub_id:x}\t{', '.join(seeds.platforms_in(seed.flags))}\t{seed.hint}")
        output.say(f"Total number of seeds: {len(listed.seeds)}.")
    if listed.text() != before:
        output.save(path, listed.text(), "Seed List")
    elif not given.has("print"):
        output.say(f"Seed List ( {path} ) is unchanged.")


def _add_seeds(listed: SeedList, words: Iterable[str], products: dict[str, PlatformProducts]) -> None:
    for word in words:
        is_found = False
        for platform, known in products.items():
            flag = seeds.flag_of(platform)
            for key in known.find_seeds(word):
                listed.add(*key, flag, known.assets[key].path)
                is_found = True
        if not is_found:
            raise UserError(
                f"'{word}' is not a product of any of the platforms {', '.join(products)}",
                hint="write paths of seeds relative to the platform's folder in the cache",
            )


def _remove_seeds(listed: SeedList, words: Iterable[str], products: dict[str, PlatformProducts], output: BundlerOutput) -> None:
    for word in words:
        flags = sum(map(seeds.flag_of, products))
        by_hint = [(seed.guid, seed.sub_id) for seed in listed.seeds if seed.hint == word.replace("\\", "/").lower()]
        keys = {key for known in products.values() for key in known.find_named(word)} or set(by_hint)
        if not [key for key in keys if listed.remove(*key, flags)]:
            output.warn(f"'{word}' is not a seed of the list")


def _add_platforms(listed: SeedList, products: dict[str, PlatformProducts], output: BundlerOutput) -> None:
    for seed in listed.seeds:
        flags = seed.flags
        for platform, known in products.items():
            if (seed.guid, seed.sub_id) in known.assets:
                flags |= seeds.flag_of(platform)
            elif not seeds.is_for(flags, platform):
                output.warn(f"seed '{seed.hint or seed.guid}' has no product for platform '{platform}'")
        listed.set(seed, flags=flags)


def _remove_platforms(listed: SeedList, platforms: Iterable[str], output: BundlerOutput) -> None:
    flags = sum(map(seeds.flag_of, platforms))
    for seed in listed.seeds:
        if seed.flags & ~flags:
            listed.set(seed, flags=seed.flags & ~flags)
        else:
            output.warn(
                f"seed '{seed.hint or seed.guid}' would have no platform left, so it is not changed; use --removeSeed to remove it"
            )


def _update_paths(listed: SeedList, products: dict[str, PlatformProducts]) -> None:
    for seed in listed.seeds:
        path = next(
            (known.assets[seed.guid, seed.sub_id].path for known in products.values() if (seed.guid, seed.sub_id) in known.assets),
            "",
        )
        if path:
            listed.set(seed, hint=path)


# ------------------------------------------------------------------------------------------------------------- asset lists


def _asset_lists(given: BundlerSwitches, project: BundlerProject, output: BundlerOutput) -> None:
    name = given.one("assetListFile")
    if not name and not given.has("print"):
        raise UserError(
            "'assetLists' needs --assetListFile or --print",
            hint="add --assetListFile=FILE to write the list, or --print to print it",
        )
    if given.has("generateDebugFile") and not name:
        raise UserError(
            "--generateDebugFile needs --assetListFile", hint="add --assetListFile=FILE; the debug file is written beside the list"
        )
    makes = given.has("addDefaultSeedListFiles") or given.all("seedListFile") or given.all("addSeed")
    platforms = project.platforms_of(name)
    paths = {platform: project.path(for_platform(name, platform), LIST_SUFFIX) for platform in platforms} if name else {}
    if not makes:
        for platform in platforms:
            output.print_assets(platform, load_list(project.asset_list(name, platform)) if name else [])
        return
    is_written = bool(paths) and not given.has("dryRun")
    if is_written:
        output.refuse_overwriting(paths.values(), is_allowed=given.has("allowOverwrites"))
    listed = seeds.merge_seeds(map(project.seed_list, given.all("seedListFile")))
    lists: dict[Path, list[ListedAsset]] = {}
    debug_texts: dict[Path, str] = {}
    for platform in platforms:
        products = project.products(platform)
        reached = products.closure(_starts(given, project, products, listed, output), given.all("skip"))
        assets = sorted(products.list_assets(reached), key=lambda item: item.path)
        if is_written:
            lists[paths[platform]] = assets
        if is_written and assets and given.has("generateDebugFile"):
            debug_texts[paths[platform].with_suffix(".assetlistdebug")] = _debug_text(products, reached)
        if given.has("print"):
            output.print_assets(platform, assets)
    for path, text in debug_texts.items():
        output.save(path, text, "Asset List Debug file")
    output.save_lists(lists)


def _starts(
    given: BundlerSwitches, project: BundlerProject, products: PlatformProducts, listed: list[Seed], output: BundlerOutput
) -> list[AssetKey]:
    if given.has("addDefaultSeedListFiles"):
        listed = [*listed, *seeds.merge_seeds(map(SeedList.load, project.default_seed_lists()))]
    found, missing = applying(listed, products)
    if given.has("addDefaultSeedListFiles"):
        more, unmet = project.default_dependencies(products)
        found, missing = [*found, *more], [*missing, *unmet]
    for word in given.all("addSeed"):
        keys = products.find_seeds(word)
        if not keys:
            missing.append(f"'{word}' is not a product of platform '{products.platform}'")
        found += keys
    for sentence in missing:
        output.warn(sentence)
    return found


def _debug_text(products: PlatformProducts, reached: dict[AssetKey, AssetKey | None]) -> str:
    """Return a line for each listed asset with the reason why it is listed: the chain of dependencies from a seed to the asset."""
    lines = []
    for key in sorted(reached, key=lambda each: products.assets[each].path):
        way, at = [], key
        while (reason := reached[at]) is not None:
            way.append(products.assets[reason].path)
            at = reason
        lines.append(
            "\t".join(
                [products.assets[key].path, *(f"<- {path}" for path in way)] if way else [products.assets[key].path, "a seed"]
            )
        )
    return "".join(f"{line}\n" for line in lines)


def _bundle_settings(given: BundlerSwitches, project: BundlerProject, output: BundlerOutput) -> None:
    """Write or change bundle settings (`.bundlesettings`), one file for each platform."""
    name = given.need_switch("bundleSettingsFile")
    texts: dict[Path, str] = {}
    for platform in project.platforms_of(name, given.one("assetListFile"), given.one("outputBundlePath")):
        path = project.path(for_platform(name, platform), SETTINGS_SUFFIX)
        settings = BundleSettings(path if path.exists() else None)
        asset_list, bundle = given.one("assetListFile"), given.one("outputBundlePath")
        settings.set(
            asset_list=project.portable_path(project.existing(for_platform(asset_list, platform), LIST_SUFFIX))
            if asset_list
            else "",
            bundle=project.portable_path(project.path(for_platform(bundle, platform), BUNDLE_SUFFIX)) if bundle else "",
            version=_version(given),
            max_mib=given.number("maxSize", 1, MOST_MIB),
        )
        if not path.exists() or settings.text() != BundleSettings(path).text():
            texts[path] = settings.text()
        if given.has("print"):
            output.say(f"Settings of '{path}':")
            output.say_all(
                f"\t{key}: {value}"
                for key, value in (
                    ("Asset list", settings.asset_list),
                    ("Bundle", settings.bundle),
                    ("Bundle version", settings.version),
                    ("Largest size in MiB", settings.max_mib),
                )
            )
    for path, text in texts.items():
        output.save(path, text, "Bundle Settings file")


def _version(given: BundlerSwitches, at: int | None = None) -> int:
    version = given.number("bundleVersion", BUNDLE_VERSIONS[0], 3, at)
    if version:
        _refuse_version(version)
    return version


def _refuse_version(version: int) -> None:
    if version not in BUNDLE_VERSIONS:
        raise UserError(
            f"bundles of version {version} are not written", hint="use version 1 or 2, which every version of the engine reads"
        )


def _load_settings(project: BundlerProject, name: str, platform: str) -> BundleSettings:
    return BundleSettings(project.existing(for_platform(name, platform), SETTINGS_SUFFIX)) if name else BundleSettings()


class _Order(Struct, frozen=True):
    """A bundle to write, with the assets of a list file, or with `assets` if `asset_list` is None."""

    platform: str
    target: Path
    version: int
    max_mib: int
    asset_list: Path | None = None
    assets: Sequence[ListedAsset] = ()


def _bundles(given: BundlerSwitches, project: BundlerProject, output: BundlerOutput) -> None:
    """Write bundles from asset lists."""
    settings, lists, targets = (list(given.all(name)) for name in ("bundleSettingsFile", "assetListFile", "outputBundlePath"))
    count = max(len(settings), len(lists), len(targets))
    if not count:
        raise UserError(
            "'bundles' needs --bundleSettingsFile, or --assetListFile and --outputBundlePath", hint=HELP.format("bundles")
        )
    for name, listed_values in (("bundleSettingsFile", settings), ("assetListFile", lists), ("outputBundlePath", targets)):
        if len(listed_values) not in (0, count):
            raise UserError(
                f"--{name} has {printing.count(len(listed_values), 'value')}, but another switch has {count} values",
                hint="give each switch one value for each bundle",
            )
    for name in ("bundleVersion", "maxSize"):
        if len(given.all(name)) not in (0, 1, count):
            raise UserError(
                f"--{name} has {len(given.all(name))} values, but the command makes {printing.count(count, 'bundle')}",
                hint="give one value for all bundles, or one for each bundle",
            )
    orders = []
    for at in range(count):
        one = [values[at] if values else "" for values in (settings, lists, targets)]
        source, suffix = (one[0], SETTINGS_SUFFIX) if one[0] else (one[1], LIST_SUFFIX)
        orders += [_order(given, project, platform, at, *one) for platform in project.platforms_with(source, suffix, *one[1:])]
    _make(orders, given, project, output)


def _order(
    given: BundlerSwitches, project: BundlerProject, platform: str, at: int, settings: str, asset_list: str, target: str
) -> _Order:
    loaded = _load_settings(project, settings, platform)
    asset_list, target = asset_list or loaded.asset_list, target or loaded.bundle
    if not asset_list or not target:
        raise UserError(
            "the list to pack or the bundle to write is missing", hint="add --assetListFile=FILE and --outputBundlePath=FILE"
        )
    return _Order(
        platform,
        project.path(for_platform(target, platform), BUNDLE_SUFFIX),
        _version(given, at) or loaded.version,
        given.number("maxSize", 1, MOST_MIB, at) or loaded.max_mib,
        project.asset_list(asset_list, platform),
    )


def _bundle_seed(given: BundlerSwitches, project: BundlerProject, output: BundlerOutput) -> None:
    """Write a bundle with seeds and their dependencies, without an asset list."""
    words = given.all("addSeed")
    if not words:
        raise UserError("'bundleSeed' needs --addSeed", hint="add a product, for example --addSeed=levels/main.spawnable")
    settings, target = given.one("bundleSettingsFile"), given.one("outputBundlePath")
    orders = []
    for platform in project.platforms_of(settings, target):
        loaded = _load_settings(project, settings, platform)
        if not (target or loaded.bundle):
            raise UserError(
                "'bundleSeed' needs --outputBundlePath", hint="name the bundle to write, for example --outputBundlePath=game.pak"
            )
        products = project.products(platform)
        keys = []
        for word in words:
            found = products.find_seeds(word)
            if not found:
                output.warn(f"'{word}' is not a product of platform '{platform}'")
            keys += found
        if not keys:
            output.say(f"Platform ( {platform} ) had no assets based on these seeds, skipping bundle generation.")
            continue
        list_assets = products.list_assets(products.closure(keys, ()))
        path = project.path(for_platform(target or loaded.bundle, platform), BUNDLE_SUFFIX)
        max_mib = given.number("maxSize", 1, MOST_MIB) or loaded.max_mib
        orders.append(_Order(platform, path, _version(given) or loaded.version, max_mib, None, list_assets))
    if not orders:
        raise UserError(
            "none of the seeds has a product",
            hint="run 'AssetProcessorBatch' to make the products, and 'aptui jobs' to see its jobs",
        )
    _make(orders, given, project, output)


def _make(orders: Sequence[_Order], given: BundlerSwitches, project: BundlerProject, output: BundlerOutput) -> None:
    output.refuse_overwriting(
        (path for order in orders for path in bundle_files.existing_bundles(order.target)), is_allowed=given.has("allowOverwrites")
    )
    for order in orders:
        _refuse_version(order.version)
        listed = load_list(order.asset_list) if order.asset_list is not None else order.assets
        products = project.products(order.platform)
        assets = []
        for item in listed:
            key = item.guid, item.sub_id
            if key not in products.assets:
                raise UserError(
                    f"'{item.path}' is no longer a product of platform '{order.platform}'",
                    hint="run 'assetLists' again to make a new list",
                )
            assets.append(PackedAsset(products.assets[key], products.file_of(key), item.digest))
        made = bundle_files.write_bundles(assets, order.target, version=order.version, max_mib=order.max_mib)
        bundle_files.delete_rollovers(order.target, made)
        for path in made:
            output.say(f"Bundle '{path}' was written ({path.stat().st_size:,} bytes).")


_COMMANDS: dict[str, Command] = {
    "seeds": _seeds,
    "assetLists": _asset_lists,
    "comparisonRules": bundler_comparisons.edit_rules,
    "compare": bundler_comparisons.compare,
    "bundleSettings": _bundle_settings,
    "bundles": _bundles,
    "bundleSeed": _bundle_seed,
}
