"""Manifests: which changes alter a fingerprint, and the description of a difference."""

from __future__ import annotations

import msgspec
import pytest
from fakes import copier, scripter, sha
from msgspec.structs import replace

from aptui.core import fingerprint
from aptui.core.model import NO_DIGEST, Job, JobPlan, PathKey, Product, ProductFlag, RelPath, Source, SourceUuid
from aptui.core.project import BuilderKind, CommandRule, Platform, ReferenceRule

LINUX = Platform("linux", ("renderer", "tools"))
BASE = scripter(params='{"size":1}', version="7", analysis_fingerprint="x", origin="entry:script", code_digest=b"1")


def rule_of(builder=BASE, platform=LINUX, *, debug_output=False) -> str:  # type: ignore[no-untyped-def]
    return fingerprint.combine(fingerprint.rule_entries(builder, platform, debug_output=debug_output))


CHANGES = {
    "name": replace(BASE, name="other"),
    "uuid": replace(BASE, uuid=b"other"),
    "kind": replace(BASE, kind=BuilderKind.COMMAND),
    "version": replace(BASE, version="8"),
    "analysis fingerprint": replace(BASE, analysis_fingerprint="y"),
    "code": replace(BASE, code_digest=b"2"),
    "origin": replace(BASE, origin="file:/x.py:X"),
    "parameters": replace(BASE, params='{"size":2}'),
    "parameters of the platform": replace(BASE, platform_params=(("linux", '{"size":2}'),)),
    "asset type": replace(BASE, asset_type=bytes(16)),
    "command": replace(BASE, command=CommandRule("true")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_builder_field_affects_the_configuration_fingerprint(change: str) -> None:
    assert rule_of(CHANGES[change]) != rule_of()


PLANNER = replace(BASE, params_schema='{"properties":{"jobs":{"is_planning_only":true},"size":{}}}', params='{"jobs":[1],"size":1}')


@pytest.mark.parametrize("change", [{"params": '{"jobs":[2],"size":1}'}, {"platform_params": (("linux", '{"jobs":[2]}'),)}])
def test_planning_parameter_affects_only_the_fingerprint_of_analyses(change: dict[str, object]) -> None:
    changed = replace(PLANNER, **change)

    assert rule_of(changed) == rule_of(PLANNER) == rule_of(replace(BASE, params='{"size":1}'))
    assert fingerprint.planning_entries(changed, "linux") != fingerprint.planning_entries(PLANNER, "linux")


def test_builder_without_planning_parameters_has_no_planning_entry() -> None:
    assert fingerprint.planning_entries(BASE, "linux") == fingerprint.planning_entries(replace(PLANNER, params="{}"), "linux") == ()


def test_parameters_of_another_platform_do_not_affect_the_fingerprint() -> None:
    assert rule_of(replace(BASE, platform_params=(("server", '{"size":2}'),))) == rule_of()


def test_fingerprint_covers_the_platform_and_its_tags_in_any_order() -> None:
    assert rule_of(platform=Platform("server", LINUX.tags)) != rule_of()
    assert rule_of(platform=Platform("linux", ("tools",))) != rule_of()
    assert rule_of(platform=Platform("linux", ("tools", "renderer"))) == rule_of()


def test_fingerprint_covers_debug_output_only_if_the_builder_uses_it() -> None:
    assert rule_of(debug_output=True) == rule_of()
    reader = replace(BASE, reads_debug_output=True)
    assert rule_of(reader) == rule_of()
    assert rule_of(reader, debug_output=True) != rule_of()


def test_fingerprint_distinguishes_values_that_join_to_the_same_text() -> None:
    one = (("source", "a", "12"), ("source", "b", "3"))
    two = (("source", "a", "1"), ("source", "b", "23"))

    assert fingerprint.number(one) != fingerprint.number(two)


def test_fingerprint_distinguishes_missing_files_and_empty_files() -> None:
    missing = [fingerprint.number((("dependency", name, fingerprint.file_digest(NO_DIGEST)),)) for name in ("a", "b")]
    empty = fingerprint.number((("dependency", "a", fingerprint.file_digest(sha(""))),))

    assert len({*missing, empty}) == 3


def test_fingerprint_has_63_bits_and_is_never_zero() -> None:
    numbers = [fingerprint.number((("source", str(n), ""),)) for n in range(200)]

    assert all(0 < number < 1 << 63 for number in numbers)
    assert len(set(numbers)) == 200
    assert fingerprint.number(()) > 0


def test_text_with_a_lone_surrogate_has_a_fingerprint() -> None:
    assert fingerprint.number((("additional fingerprint", "\ud800", "1"),)) > 0
    assert fingerprint.combine((("version", "\ud800", "1"),))


def test_job_plan_with_default_values_has_no_manifest_entries() -> None:
    assert fingerprint.plan_entries(JobPlan("main", "linux")) == ()


def test_parameters_and_additional_fingerprint_of_a_plan_become_entries() -> None:
    entries = fingerprint.plan_entries(JobPlan("main", "linux", additional_fingerprint="v2", params='{"a":1}'))

    assert [entry[:2] for entry in entries] == [("job parameters", '{"a":1}'), ("additional fingerprint", "v2")]


def test_priority_and_urgency_of_a_plan_do_not_change_the_fingerprint() -> None:
    assert fingerprint.plan_entries(JobPlan("main", "linux", priority=9, is_critical=True)) == ()


# ---------------------------------------------------------------------------------------------------------------- products


def making(*products: Product) -> Job:
    source = Source(PathKey("a.s"), RelPath("a.s"), 1, SourceUuid(bytes(16)))
    return Job(source, b"b", "linux", "main", products=products)


ONE = Product("linux/a.out", 0, b"", 1, sha("one"), 1, 3)
TWO = Product("linux/a.1", 1, b"", 1, sha("two"), 2, 3)


def test_fingerprint_covers_content_and_flags_of_products_in_any_order() -> None:
    base = fingerprint.digest_for_dependents(making(ONE, TWO), ())

    assert fingerprint.digest_for_dependents(making(TWO, ONE), ()) == base
    assert fingerprint.digest_for_dependents(making(ONE, replace(TWO, digest=sha("x"))), ()) != base
    assert fingerprint.digest_for_dependents(making(ONE, replace(TWO, flags=2)), ()) != base
    assert fingerprint.digest_for_dependents(making(ONE, replace(TWO, flags=TWO.flags | ProductFlag.CACHED)), ()) == base
    assert fingerprint.digest_for_dependents(making(ONE), ()) != base


def test_fingerprint_covers_only_the_products_with_the_given_sub_ids() -> None:
    base = fingerprint.digest_for_dependents(making(ONE, TWO), (0,))

    assert fingerprint.digest_for_dependents(making(ONE, replace(TWO, digest=sha("x"))), (0,)) == base
    assert fingerprint.digest_for_dependents(making(replace(ONE, digest=sha("x")), TWO), (0,)) != base


# -------------------------------------------------------------------------------------------- explanations of differences

SENTENCES = [
    ((("source", "a.s", "1" * 32),), (("source", "a.s", "2" * 32),), "source 'a.s' changed (11111111 -> 22222222)"),
    ((), (("dependency", "x", "1"),), "dependency 'x' is new"),
    ((("dependency", "x", fingerprint.MISSING),), (("dependency", "x", "1"),), "dependency 'x' is new"),
    ((("dependency", "x", "1"),), (), "dependency 'x' was removed"),
    (
        (("discovered", "x", "1"),),
        (("discovered", "x", fingerprint.MISSING),),
        "dependency 'x' (found while processing) was removed",
    ),
    ((("version", "1", "a"),), (("version", "2", "b"),), "the builder's version changed from '1' to '2'"),
    ((), (("additional fingerprint", "v", "b"),), "the job's additional fingerprint was set to 'v'"),
    ((("command", "cp", "a"),), (), "the command line was removed"),
    ((("products", "b", "1"),), (), "the products of job 'b' were removed"),
    ((), (("products", "b", "1"),), "the products of job 'b' are new"),
    ((), (("products", "b", fingerprint.MISSING),), "the products of job 'b' are now declared, but missing"),
    ((("parameters", "{}", "a"),), (), "the builder's parameters were removed"),
    ((("source", "a", "1"),), (("source", "a", "1"),), ""),
    ((("mystery", "a", "1"),), (("mystery", "a", "2"),), "mystery changed (1 -> 2)"),
]


@pytest.mark.parametrize(("old", "new", "sentence"), SENTENCES)
def test_description_of_a_difference_names_the_input_that_changed(
    old: fingerprint.Manifest, new: fingerprint.Manifest, sentence: str
) -> None:
    assert fingerprint.explain(old, new) == sentence


def test_description_of_many_differences_names_only_three_inputs() -> None:
    new = tuple(("dependency", str(n), "1") for n in range(9))

    text = fingerprint.explain((), new)

    assert text == "dependency '0' is new; dependency '1' is new; dependency '2' is new; and 6 more"


def test_manifest_read_back_from_its_text_is_equal() -> None:
    manifest = (("source", "ä\t\n", "1"), ("job", "b", "2"))

    assert fingerprint.load(fingerprint.dump(manifest)) == manifest
    assert fingerprint.load(fingerprint.dump(manifest).encode()) == manifest
    assert fingerprint.load(fingerprint.dump(())) == fingerprint.load("") == fingerprint.load(None) == ()


def test_copy_builder_has_a_fingerprint_entry_for_each_setting() -> None:
    kinds = [kind for kind, _name, _digest in fingerprint.rule_entries(copier(), LINUX, debug_output=False)]

    assert kinds == [
        "builder", "version", "analysis fingerprint", "code", "parameters", "platform parameters", "platform", "asset type",
    ]  # fmt: skip


def test_builder_of_a_project_has_the_same_fingerprint_in_any_project_folder() -> None:
    here, there = (replace(BASE, origin=f"file:{folder}/builders/words.py:Words") for folder in ("/home/me/game", "/srv/game"))

    assert rule_of(here) == rule_of(there)


COMMAND = CommandRule("tool {source}", ("x",), "d", "r", "w", "e", "l")
REFERENCE = ReferenceRule("(?P<path>x)", "{path}.x", 2, 2, is_beside=True, is_in_source=True)


def digests_of(command: CommandRule = COMMAND, reference: ReferenceRule = REFERENCE) -> dict[str, str]:
    """Return {kind of manifest entry: digest} of a builder's configuration."""
    rule = replace(BASE, command=command, references=(reference,))
    return {kind: digest for kind, _name, digest in fingerprint.rule_entries(rule, LINUX, debug_output=False)}


@pytest.mark.parametrize("name", [name for name in CommandRule.__struct_fields__ if name != "batch"])
def test_every_command_field_affects_the_digest_of_the_command(name: str) -> None:
    """`batch` is not tested: the number of files per start does not affect a product."""
    other = replace(COMMAND, **{name: ("other",) if name == "products" else "other"})

    assert digests_of(other)["command"] != digests_of()["command"]


@pytest.mark.parametrize("name", ReferenceRule.__struct_fields__)
def test_every_reference_field_affects_the_digest_of_references(name: str) -> None:
    value = getattr(REFERENCE, name)
    other = replace(REFERENCE, **{name: not value if isinstance(value, bool) else value * 2})

    assert digests_of(reference=other)["references"] != digests_of()["references"]


def test_digest_of_commands_and_references_is_equal_in_every_aptui_version() -> None:
    assert (digests_of()["command"], digests_of()["references"]) == (
        "0d6b1afb92e3bf91ea739fbe51154b9b",
        "9be7aade1741d91e3f30737717684e34",
    )


def test_new_field_with_its_default_value_does_not_change_the_digest() -> None:
    later = msgspec.defstruct("Later", [("new_field", str, "")], bases=(CommandRule,), frozen=True)

    assert digests_of(later("tool"))["command"] == digests_of(CommandRule("tool"))["command"]
