"""Where results besides the cache are kept, and who else runs jobs: shared cache, local store, cluster.

Tests: `tests/config/sections/test_sharing.py`.
"""

from __future__ import annotations

from aptui.config.compiling.tree import MergedTree
from aptui.config.dirs import store_dir
from aptui.config.model import SharedCachePattern, SharedCacheSettings
from aptui.config.sections import cluster as config_cluster
from aptui.config.sections.sharing import UNSEALED, flaw_of_address, is_own
from aptui.config.yaml import nodes, scalars
from aptui.config.yaml.nodes import Node
from aptui.shared.errors import UserError


def compile_shared_cache(tree: MergedTree, builders: set[str]) -> SharedCacheSettings:
    """Return what `shared_cache` and `local_store` say."""
    shared, local = tree.members("shared_cache"), tree.members("local_store")
    names: dict[str, Node] = shared.get("builders", Node({}, "")).value
    for name, node in names.items():
        if name not in builders and not (tree.folder / "builders").is_dir():
            tree.wrong(f"no builder is called '{name}'", node, nodes.nearest(name, builders))
    path = local["path"].value if "path" in local else store_dir()
    mode, store = shared["mode"].value, shared.get("store")
    if mode != "inactive" and store is None:
        tree.wrong(f"a shared cache in mode '{mode}' needs a store", shared["mode"], "for example store: /mnt/team/aptui")
    if store is not None and (flaw := flaw_of_address(store.value)):
        tree.wrong(flaw, store, "an absolute folder, http(s)://HOST[:PORT]/PATH, or s3://BUCKET")
    _check_trust(tree, shared)
    patterns = [tree.attempt(_compile_pattern, node) for node in shared.get("patterns", Node([], "")).value]
    return SharedCacheSettings(
        mode=mode,
        store=tree.store(store.value) if store is not None else "",
        namespace=shared["namespace"].value,
        team_key_file=tree.file(shared.get("team_key_file")),
        signing_key_file=tree.file(shared.get("signing_key_file")),
        writers=tuple(node.value.lower() for node in shared.get("writers", Node([], "")).value),
        patterns=tuple(pattern for pattern in patterns if pattern is not None),
        builders=tuple((name, node.value) for name, node in names.items()),
        deadline_s=scalars.seconds(shared["deadline"].value),
        waits_for_uploads=shared["upload"].value == "complete",
        local_store=tree.absolute(path) if local["enabled"].value else "",
        local_limit_bytes=scalars.byte_count(local["size_limit"].value),
        links=local["links"].value == "hard",
    )


def _check_trust(tree: MergedTree, members: dict[str, Node]) -> None:
    """Refuse a shared cache of others whose results nobody vouches for, unless that is written out."""
    store = members.get("store")
    if members["mode"].value == "inactive" or store is None or members["trust"].value == UNSEALED:
        return
    if not ("team_key_file" in members or "writers" in members or is_own(tree.store(store.value))):
        tree.wrong(
            "anyone who can write to this shared cache could replace products here: it has no key",
            store,
            "'aptui cache init' makes one; 'trust: unsealed' does without",
        )


def _compile_pattern(node: Node) -> SharedCachePattern:
    found = [node.value[key] for key in ("glob", "regex") if key in node.value]
    if len(found) != 1:
        raise UserError("a pattern has either a glob or a regex", where=node.where)
    is_glob, enabled = "glob" in node.value, node.get("enabled")
    pattern = scalars.pattern_of(found[0] if is_glob else node)
    return SharedCachePattern(node.value["name"].value, pattern, enabled is None or enabled.value)


def compile_cluster(tree: MergedTree) -> config_cluster.ClusterSettings:
    """Return what `pool` says, and what builders say for it."""
    node = tree.root.get("pool") or tree.root
    pool, builders = tree.plain_tree("pool"), [each.plain() for each in tree.items("builders")]
    try:
        cluster = config_cluster.compile_cluster(pool, builders, tree.folder)
    except UserError as mistake:
        raise UserError(mistake.what, where=node.where, hint=mistake.hint) from None
    if cluster.is_used and not cluster.store and "store" not in tree.members("shared_cache"):
        raise UserError(
            "a cluster needs a store, through which files travel", where=node.where, hint="pool.store, or shared_cache.store"
        )
    return cluster
