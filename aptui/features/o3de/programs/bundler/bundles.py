"""`bundleSettings`, `bundles` and `bundleSeed` of `AssetBundlerBatch`.

Tests: `tests/features/o3de/programs/test_asset_bundler_batch.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from aptui.features.o3de.bundling import asset_lists, bundle_files
from aptui.features.o3de.bundling.asset_lists import ListedAsset
from aptui.features.o3de.bundling.bundle_files import (
    BUNDLE_SUFFIX,
    BUNDLE_VERSIONS,
    MOST_MIB,
    SETTINGS_SUFFIX,
    BundleSettings,
    PackedAsset,
)
from aptui.features.o3de.programs.bundler.project import BundlerOutput, BundlerProject, for_platform
from aptui.features.o3de.programs.bundler.switches import HELP, BundlerSwitches
from aptui.shared.errors import UserError


def bundle_settings(given: BundlerSwitches, project: BundlerProject, output: BundlerOutput) -> None:
    """Write or change settings, one file for each platform."""
    name = given.need_switch("bundleSettingsFile")
    texts: dict[Path, str] = {}
    for platform in project.platforms_of(name, given.one("assetListFile")):
        path = project.path(for_platform(name, platform), SETTINGS_SUFFIX)
        settings = BundleSettings(path if path.exists() else None)
        asset_list, bundle = given.one("assetListFile"), given.one("outputBundlePath")
        settings.set(
            asset_list=str(project.existing(for_platform(asset_list, platform), asset_lists.SUFFIX)) if asset_list else "",
            bundle=str(project.path(for_platform(bundle, platform), BUNDLE_SUFFIX)) if bundle else "",
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
                    ("Largest size in MB", settings.max_mib),
                )
            )
    for path, text in texts.items():
        output.save(path, text, "Bundle Settings file")


def _version(given: BundlerSwitches) -> int:
    version = given.number("bundleVersion", BUNDLE_VERSIONS[0], 3)
    if version and version not in BUNDLE_VERSIONS:
        raise UserError(f"bundles of version {version} are not written", hint="1 and 2 are read by every version of the engine")
    return version


class _Order(Struct, frozen=True):
    """A bundle that is to be made; `assets` None = those of the list."""

    platform: str
    target: Path
    version: int
    max_mib: int
    asset_list: Path | None = None
    assets: Sequence[ListedAsset] = ()


def bundles(given: BundlerSwitches, project: BundlerProject, output: BundlerOutput) -> None:
    """Write the bundles of asset lists."""
    settings, lists, targets = (list(given.all(name)) for name in ("bundleSettingsFile", "assetListFile", "outputBundlePath"))
    count = max(len(settings), len(lists), len(targets))
    if not count:
        raise UserError(
            "'bundles' needs --bundleSettingsFile, or --assetListFile and --outputBundlePath", hint=HELP.format("bundles")
        )
    for name, listed_values in (("bundleSettingsFile", settings), ("assetListFile", lists), ("outputBundlePath", targets)):
        if len(listed_values) not in (0, count):
            raise UserError(
                f"--{name} has {len(listed_values)} values, and others have {count}",
                hint="give each switch one value for each bundle",
            )
    orders = []
    for at in range(count):
        one = [values[at] if values else "" for values in (settings, lists, targets)]
        orders += [_order(given, project, platform, *one) for platform in project.platforms_of(*one)]
    _make(orders, given, project, output)


def _order(given: BundlerSwitches, project: BundlerProject, platform: str, settings: str, asset_list: str, target: str) -> _Order:
    settings_files = (
        BundleSettings(project.existing(for_platform(settings, platform), SETTINGS_SUFFIX)) if settings else BundleSettings()
    )
    asset_list, target = asset_list or settings_files.asset_list, target or settings_files.bundle
    if not asset_list or not target:
        raise UserError("what to pack, or where to, is missing", hint="see --assetListFile and --outputBundlePath")
    return _Order(
        platform,
        project.path(for_platform(target, platform), BUNDLE_SUFFIX),
        _version(given) or settings_files.version,
        given.number("maxSize", 1, MOST_MIB) or settings_files.max_mib,
        project.asset_list(asset_list, platform),
    )


def bundle_seed(given: BundlerSwitches, project: BundlerProject, output: BundlerOutput) -> None:
    """Write the bundle of seeds and what they need, without a list."""
    words = given.all("addSeed")
    if not words:
        raise UserError("'bundleSeed' needs --addSeed", hint="name a product, as in --addSeed=levels/main.spawnable")
    settings, target = given.one("bundleSettingsFile"), given.one("outputBundlePath")
    orders = []
    for platform in project.platforms_of(settings, target):
        settings_files = (
            BundleSettings(project.existing(for_platform(settings, platform), SETTINGS_SUFFIX)) if settings else BundleSettings()
        )
        if not (target or settings_files.bundle):
            raise UserError("'bundleSeed' needs --outputBundlePath", hint="name the bundle, as in --outputBundlePath=game.pak")
        products = project.products(platform)
        keys = []
        for word in words:
            found = products.find_named(word)
            if not found:
                output.warn(f"'{word}' is no product for platform '{platform}'")
            keys += found
        if not keys:
            raise UserError(
                f"none of the seeds has a product for platform '{platform}'",
                hint="'AssetProcessorBatch' makes the products; 'aptui jobs' lists them",
            )
        list_assets = products.list_assets(products.closure(keys, ()))
        path = project.path(for_platform(target or settings_files.bundle, platform), BUNDLE_SUFFIX)
        max_mib = given.number("maxSize", 1, MOST_MIB) or settings_files.max_mib
        orders.append(_Order(platform, path, _version(given) or settings_files.version, max_mib, None, list_assets))
    _make(orders, given, project, output)


def _make(orders: Sequence[_Order], given: BundlerSwitches, project: BundlerProject, output: BundlerOutput) -> None:
    output.refuse_overwriting(
        (path for order in orders for path in bundle_files.free_names(order.target)), is_allowed=given.has("allowOverwrites")
    )
    for order in orders:
        if order.version not in BUNDLE_VERSIONS:
            raise UserError(
                f"bundles of version {order.version} are not written", hint="1 and 2 are read by every version of the engine"
            )
        listed = asset_lists.load(order.asset_list) if order.asset_list is not None else order.assets
        products = project.products(order.platform)
        assets = []
        for item in listed:
            key = item.guid, item.sub_id
            if key not in products.assets:
                raise UserError(
                    f"'{item.path}' is no product for platform '{order.platform}' any more", hint="make the asset list again"
                )
            assets.append(PackedAsset(products.assets[key], products.file_of(key), item.digest))
        made = bundle_files.write_bundles(assets, order.target, version=order.version, max_mib=order.max_mib)
        bundle_files.delete_rollovers(order.target, made)
        for path in made:
            output.say(f"Bundle '{path}' was written ({path.stat().st_size:,} bytes).")
