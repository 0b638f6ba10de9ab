"""The messages of O3DE's asset processor protocol as records: type ids, versions and fields, in the binary ObjectStream.

A message is an object of an O3DE class: an element `BaseClass1` for the base class, then the fields. The field
`RequireFencing` of the base class requests a barrier: the answer waits until earlier changes on the disk are processed. A reader
ignores unknown fields and gives missing fields their default value. Sources: O3DE's `AssetProcessorMessages`, `AssetRegistry` and
`EditorAssetSystemAPI`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from aptui.core.paths import from_text, to_text
from aptui.features.o3de.binary_stream import (
    ALLOCATOR,
    ASSET_ID,
    DEPENDENCY,
    END,
    INFO,
    PREFIX,
    STRING,
    U32,
    U64,
    UUID_TYPE,
    BinaryElement,
    bits_of,
    crc_of,
    element_head,
    fold_template,
    leaf,
    map_of,
    pair_of,
    parse,
    set_of,
    start_element,
    uuid_bytes,
    vector_of,
)

MOST_ELEMENTS = 20_000
"""Maximum number of elements in a message of a client; the largest message of O3DE has a few dozen."""
_BASE = uuid_bytes("366A7093-C57B-4514-A1BD-A6437AEF2098")
_CHAR, _U8, _BOOL, _INT, _S64 = (
    uuid_bytes("3AB0037F-AF8D-48CE-BCA0-A170D18B2C03"),
    uuid_bytes("72B9409A-7D1A-4831-9CFE-FCB3FADD3426"),
    uuid_bytes("A0CA880C-AFE4-43CB-926C-59AC48496112"),
    uuid_bytes("72039442-EB38-4D42-A1AD-CB68F7E0EEF6"),
    uuid_bytes("70D8A282-A1EA-462D-9D04-51EDE81FAC2F"),
)
_OS_ALLOCATOR = fold_template(
    uuid_bytes("42D0AA1E-3C6C-440E-ABF8-435931150470"), uuid_bytes("9F835EE3-F23C-454E-B4E3-011E2F3C8118")
)
_TRAITS = fold_template(_CHAR, uuid_bytes("9B018C0C-022E-4BA4-AE91-2C1E8592DBB2"))
OS_STRING = fold_template(_CHAR, _TRAITS, _OS_ALLOCATOR, uuid_bytes("C26397ED-8F60-4DF6-8320-0D0C592DA3CD"))
"""Type id of the strings in most messages, which use another allocator than `STRING`."""
NO_UUID = bytes(16)
AssetKey = tuple[bytes, int]
"""An asset id: UUID and sub id."""
NO_ASSET: AssetKey = (NO_UUID, 0)


class FieldKind(NamedTuple):
    """The type of a field; `write(name, value)` returns the field as an element, and `read(element)` returns its value."""

    type_id: bytes
    write: Callable[[str, Any], bytes]
    read: Callable[[BinaryElement], Any]
    default: Any


def _value_kind(type_id: bytes, pack: Callable[[Any], bytes], unpack: Callable[[bytes], Any], default: Any) -> FieldKind:
    return FieldKind(
        type_id, lambda name, value: leaf(type_id, name, pack(value)), lambda found: unpack(found.value or b""), default
    )


def _number_kind(type_id: bytes, form: str) -> FieldKind:
    packing = struct.Struct(form)
    return _value_kind(type_id, packing.pack, lambda value: packing.unpack(value)[0], 0)


def _text_kind(type_id: bytes) -> FieldKind:
    """Return the field type of texts with this type id.

    Values are encoded as in the database (`core.paths`), because a text may have bytes that are not UTF-8.
    """
    return _value_kind(type_id, from_text, to_text, "")


def _list_kind(item: FieldKind, allocator: bytes = ALLOCATOR) -> FieldKind:
    type_id = vector_of(item.type_id, allocator)

    def write(name: str, values: Sequence[Any]) -> bytes:
        return b"".join((element_head(type_id, name, 0, 0), *(item.write("element", value) for value in values), END))

    return FieldKind(type_id, write, lambda found: tuple(map(item.read, found.children)), ())


def _map_kind(key: FieldKind, value: FieldKind) -> FieldKind:
    type_id, pair = map_of(key.type_id, value.type_id), pair_of(key.type_id, value.type_id)

    def write(name: str, values: dict[Any, Any]) -> bytes:
        pairs = (
            element_head(pair, "element", 0, 0) + key.write("value1", each) + value.write("value2", item) + END
            for each, item in values.items()
        )
        return b"".join((element_head(type_id, name, 0, 0), *pairs, END))

    def read(found: BinaryElement) -> dict[Any, Any]:
        return {_field(pair, "value1", key): _field(pair, "value2", value) for pair in found.children}

    return FieldKind(type_id, write, read, {})


def _class_kind(
    type_id: str | bytes, version: int, fields: Sequence[tuple[str, FieldKind]], *, has_base: bool = False
) -> FieldKind:
    """Return the field type for a class; a value is a tuple of the values of the class's fields."""
    number = uuid_bytes(type_id) if isinstance(type_id, str) else type_id

    def write(name: str, values: Sequence[Any]) -> bytes:
        parts = (kind.write(each, value) for (each, kind), value in zip(fields, values, strict=True))
        return b"".join((element_head(number, name, version, 0), _write_base(False) if has_base else b"", *parts, END))

    def read(found: BinaryElement) -> tuple[Any, ...]:
        return tuple(_field(found, each, kind) for each, kind in fields)

    return FieldKind(number, write, read, tuple(kind.default for _, kind in fields))


def _field(found: BinaryElement, name: str, kind: FieldKind) -> Any:
    element = found.get(name)
    return kind.default if element is None else kind.read(element)


def _uuid_of(value: bytes) -> bytes:
    if len(value) != len(NO_UUID):
        raise ValueError("a UUID has a wrong length")
    return value


_BOOL_KIND = _value_kind(_BOOL, lambda value: b"\1" if value else b"\0", lambda value: value not in (b"", b"\0"), False)
_UUID_KIND = _value_kind(UUID_TYPE, bytes, _uuid_of, NO_UUID)
_U32_KIND, _U64_KIND, _TEXT_KIND, _OS_KIND = (
    _number_kind(U32, ">I"),
    _number_kind(U64, ">Q"),
    _text_kind(STRING),
    _text_kind(OS_STRING),
)
_INT_KIND, _S64_KIND = _number_kind(_INT, ">i"), _number_kind(_S64, ">q")
_BYTES_KIND = _value_kind(vector_of(_U8, _OS_ALLOCATOR), bytes, bytes, b"")
_BITS_KIND = _value_kind(bits_of(64), struct.Struct("<Q").pack, lambda value: int.from_bytes(value, "little"), 0)
_ASSET_KIND = _class_kind(ASSET_ID, 1, (("guid", _UUID_KIND), ("subId", _U32_KIND)))
_INFO_KIND = _class_kind(
    INFO, 2, (("assetId", _ASSET_KIND), ("relativePath", _TEXT_KIND), ("sizeBytes", _U64_KIND), ("assetType", _UUID_KIND))
)
_NEEDS_KIND = _list_kind(_class_kind(DEPENDENCY, 1, (("assetId", _ASSET_KIND), ("flags", _BITS_KIND))))
_JOB_FIELDS = (
    ("sourceFile", _TEXT_KIND), ("platform", _TEXT_KIND), ("builderUuid", _UUID_KIND), ("jobKey", _TEXT_KIND),
    ("jobRunKey", _U64_KIND), ("status", _INT_KIND), ("firstFailLogTime", _S64_KIND), ("firstFailLogFile", _TEXT_KIND),
    ("lastFailLogTime", _S64_KIND), ("lastFailLogFile", _TEXT_KIND), ("lastLogTime", _S64_KIND), ("lastLogFile", _TEXT_KIND),
    ("jobID", _S64_KIND), ("watchFolder", _TEXT_KIND), ("errorCount", _S64_KIND), ("warningCount", _S64_KIND),
)  # fmt: skip


def _empty_kind(type_id: bytes) -> FieldKind:
    """Return the field type for a set or map of assets that is always empty in aptui's messages."""
    return FieldKind(type_id, lambda name, _none: element_head(type_id, name, 0, 0) + END, lambda _found: (), ())


_CHANGE_FIELDS = (
    ("StringData", _OS_KIND), ("NotificationType", _U32_KIND), ("size", _U64_KIND), ("assetId", _ASSET_KIND),
    ("assetType", _UUID_KIND), ("dependencies", _NEEDS_KIND), ("platform", _OS_KIND),
)  # fmt: skip
_CHANGE_ID, _CHANGE_VERSION = "09EDFFA4-6851-4AB2-B018-51F0F671D9D5", 7
_KINDS = {
    "bool": _BOOL_KIND, "int": _INT_KIND, "u8": _number_kind(_U8, ">B"), "u32": _U32_KIND, "u64": _U64_KIND, "s64": _S64_KIND,
    "uuid": _UUID_KIND, "os": _OS_KIND, "text": _TEXT_KIND, "bytes": _BYTES_KIND, "asset": _ASSET_KIND, "info": _INFO_KIND,
    "infos": _list_kind(_INFO_KIND), "needs": _NEEDS_KIND, "texts": _list_kind(_TEXT_KIND),
    "names": _list_kind(_OS_KIND, _OS_ALLOCATOR), "facts": _map_kind(_U32_KIND, _OS_KIND),
    "jobs": _list_kind(_class_kind("276C9DE3-0C81-4721-91FE-F7C961D28DA8", 4, _JOB_FIELDS)),
    "no_load": _empty_kind(set_of(ASSET_ID)), "preload": _empty_kind(map_of(ASSET_ID, set_of(ASSET_ID))),
    "changes": _list_kind(_class_kind(_CHANGE_ID, _CHANGE_VERSION, _CHANGE_FIELDS, has_base=True)),
}  # fmt: skip


class Shape(Struct, frozen=True):
    """A class of messages. A message of a class without base class and fields is written as an empty value."""

    name: str
    type_id: bytes
    version: int
    fields: tuple[tuple[str, FieldKind], ...]
    has_base: bool = True


class O3deMessage(Struct):
    """A message: the values of its fields. If `needs_barrier`, the answer waits until earlier changes on the disk are processed."""

    shape: Shape
    values: dict[str, Any] = field(default_factory=dict)
    needs_barrier: bool = False

    def __getitem__(self, name: str) -> Any:
        """Return the value of a field."""
        return self.values[name]


def _shape(name: str, spec: str, *, has_base: bool = True) -> Shape:
    """Return the class of messages that `spec` describes: type id, version and fields (`name:type`, for example `Path:os`)."""
    type_id, version, *fields = spec.split()
    pairs = tuple((each, _KINDS[kind]) for each, _, kind in (field.partition(":") for field in fields))
    return Shape(name, uuid_bytes(type_id), int(version), pairs, has_base)


def _write_base(needs_barrier: bool) -> bytes:
    return element_head(_BASE, "BaseClass1", 1, 0) + _BOOL_KIND.write("RequireFencing", needs_barrier) + END


def encode(message: O3deMessage) -> bytes:
    """Return a message as a payload."""
    shape = message.shape
    return b"".join((
        PREFIX,
        start_element(shape.type_id, "", None if shape.has_base or shape.fields else b"", shape.version),
        _write_base(message.needs_barrier) if shape.has_base else b"",
        *(kind.write(name, message.values.get(name, kind.default)) for name, kind in shape.fields),
        END, END,
    ))  # fmt: skip


def decode(shape: Shape, payload: bytes) -> O3deMessage:
    """Return the message in a payload.

    Raises:
        ValueError: the payload is not a message of this class.
    """
    found = parse(payload, MOST_ELEMENTS)
    if found.type_id != shape.type_id:
        message = f"the message is not a {shape.name}"
        raise ValueError(message)
    base = found.get("BaseClass1")
    try:
        values = {name: _field(found, name, kind) for name, kind in shape.fields}
        return O3deMessage(shape, values, base is not None and _field(base, "RequireFencing", _BOOL_KIND))
    except struct.error as error:
        message = f"a number in a {shape.name} has a wrong length"
        raise ValueError(message) from error


# ---------------------------------------------------------------------------------------------------------------- messages


class O3deExchange(Struct, frozen=True):
    """A request of clients: its name, its messages (`response` None = no answer), and how far aptui supports it."""

    wire_name: str
    request: Shape
    response: Shape | None
    extent: str = "answered"

    @property
    def type_number(self) -> int:
        """The type number in the frames of request and answer: the CRC of the name."""
        return crc_of(self.wire_name)


def _exchange(
    wire_name: str, request: str, response: str | None = None, extent: str = "answered", *, name: str = "", has_base: bool = True
) -> O3deExchange:
    """Return a request; `request` and `response` describe its messages in the form that `_shape` reads.

    Args:
        name: the class of the request; by default the last word of `wire_name`. If the word does not contain "Request", this
            suffix is added.
    """
    word = wire_name.rpartition(":")[2]
    name = name or (word if "Request" in word else f"{word}Request")
    answer = None if response is None else _shape(name.replace("Request", "Response"), response)
    return O3deExchange(wire_name, _shape(name, request, has_base=has_base), answer, extent)


_HELLO = _shape(
    "NegotiationMessage",
    "BA6336E4-4DF5-49EF-A184-FE8F5BC73731 1 ApiVersion:int Identifier:os NegotiationInfo:facts",
    has_base=False,
)
NEGOTIATION = O3deExchange("AssetSystem::Negotiation", _HELLO, _HELLO)
EXCHANGES = (
    NEGOTIATION,
    _exchange("AssetSystem::RequestPing", "E06F6663-A168-439A-83E1-6F2215BAC0B6 1", "54E0B5ED-F0DB-4DA1-81C7-A4F96AA7F6BA 1"),
    _exchange("AssetSystem::RequestAssetStatus",
              "0CBE6A7C-9D19-4D41-B29C-A52476BB337A 3 SearchTerm:os IsStatusRequest:bool AssetId:asset SearchType:int",
              "151CB7D2-8A11-4072-A173-5EDF2A11C9E2 1 AssetStatus:int"),
    _exchange("AssetSystem::RequestEscalateAsset", "E95C5422-5F00-478B-A984-C041DE70484F 1 m_assetUuid:uuid m_searchTerm:os"),
    _exchange("AssetSystem::RequestAssetProcessorStatus", "DEC6CF93-0A16-4D83-AA6D-97FB86340525 1 Platform:os",
              "978350FB-3BD2-4F5C-ABEF-5AB78981C23A 1 NumberOfPendingCopyJobs:int IsAssetProcessorReady:bool"),
    _exchange("AssetSystem::AssetProcessorPlatformStatusRequest", "529A8549-DD78-4E66-9BEA-D633846115C6 1 Platform:os",
              "3F804A16-3C5A-41A5-9051-7714E3CFAC9A 1 IsPlatformEnabled:bool"),
    _exchange("AssetSystem::AssetProcessorPendingPlatformAssetsRequest", "5B16F6F2-0F94-4BAE-8238-1E8F3E66D507 1 Platform:os",
              "E63825D6-4704-471D-8594-B96656FA4477 1 NumberOfPendingJobs:int"),
    _exchange("AssetSystem::GetUnresolvedDependencyCountsRequest", "DE432E6F-72D8-48A7-857C-51D1D41EB880 1 AssetId:asset",
              "6FC67F5D-4941-41B9-92C5-7778CB853F94 1 UnresolvedAssetIdReferences:u32 UnresolvedPathReferences:u32"),
    _exchange("AssetSystem::GetRelativeProductPathFromFullSourceOrProductPath",
              "2ED7888B-959C-451C-90B6-8EF7B0B4E385 1 SourceOrProductPath:os",
              "4BAD0A94-EE97-42A7-ACEC-0698012114A8 1 RelativeProductPath:os Resolved:bool"),
    _exchange("AssetSystem::GenerateRelativeSourcePathRequest", "B3865033-F5A3-4749-8147-7B1AB04D5F6D 1 SourcePath:os",
              "938D33DB-C8F6-4FA4-BC81-2F139A9BE1D7 1 RelativeSourcePath:os RootFolder:os Resolved:bool"),
    _exchange("AssetSystem::GetFullSourcePathFromRelativeProductPath",
              "F48E2159-4711-4D0E-838F-91B472AE10FF 1 RelativeProductPath:os",
              "AA80F608-A8A7-49D2-A125-BCB9378526F0 2 FullSourcePath:os Resolved:bool"),
    _exchange("AssetProcessor::SourceAssetInfoRequest",
              "E92CD74F-11E0-4AD8-A786-61D3B9715E35 2 AssetId:asset AssetType:uuid AssetPath:os",
              "2E748A05-9ACC-4459-9E98-76B71E8A7BB7 1 Found:bool WatchFolder:os AssetInfo:info"),
    _exchange("AssetProcessor::SourceAssetProductsInfoRequest", "14D0994C-7096-44D9-A239-2A7B51DDC95A 1 AssetId:asset",
              "DF0B7C57-534E-480E-8889-C4872C87C1C3 1 Found:bool ProductsAssetInfo:infos"),
    _exchange("AssetProcessor::AssetInfoRequest",
              "AB1468DB-99B5-4666-A619-4D3F746805A5 3 AssetId:asset AssetPath:os AssetType:uuid PlatformName:os",
              "B217A11F-430A-40EA-AF4A-4644F5879695 2 Found:bool AssetInfo:info RootFolder:os"),
    _exchange("AssetProcessor::AssetDependencyInfoRequest",
              "2365EEA3-D8A6-41E4-9C9F-2113D5617230 0 AssetId:asset DependencyType:u8",
              "B6F9FD89-3F62-43FF-A457-2767CE904C81 0 Found:bool ErrorString:text Dependencies:needs NoLoadSet:no_load "
              "PreloadAssetList:preload",
              "answered in part: a request by load behaviour gets all dependencies; NoLoadSet and PreloadAssetList are empty"),
    _exchange("AssetProcessor::GetScanFoldersRequest", "A3D7FD31-C260-4D6C-B970-D565B43F1316 1",
              "13100365-009E-4C82-A682-A8E3646EB0E0 1 ScanFolders:texts", has_base=False),
    _exchange("AssetProcessor::GetAssetSafeFoldersRequest", "9A7951B1-257C-45F0-B334-A52A42A5A871 1",
              "36C1AA51-8940-4909-A01B-19454B6312E5 1 AssetSafeFolders:texts", has_base=False),
    _exchange("AssetProcessor::AssetJobsInfoRequest",
              "E5DEF45C-C4CF-47ED-843F-97B3C4A3D5B3 4 SearchTerm:os EscalateJobs:bool IsSearchTermJobKey:bool AssetId:asset",
              "743AFB3B-F24C-4546-BEEC-2769442B52DB 1 JobList:jobs Success:bool",
              "answered in part: times and files of failed logs are not filled in"),
    _exchange("AssetProcessor::AssetJobLogRequest", "8E69F76E-F25D-486E-BC3F-26BB3FF5A3A3 1 JobRunKey:u64",
              "4CBB55AB-24E3-4A7A-ACB7-54069289AF2C 1 JobLog:text Success:bool"),
    _exchange("AssetProcessor::AssetFingerprintClearRequest", "2B7B5477-D3F8-43FF-8595-89D023690FCB 1 SearchTerm:os",
              "FA7960F5-3F02-46C8-B85B-CB23A1D529B1 1 Success:bool"),
    _exchange("AssetProcessorManager::SaveCatalogRequest", "12B0C076-97A8-4FAE-9F56-22A890766272 0",
              "F1B4F440-1251-4516-9FAE-2BB067D58191 1 CatalogSaved:bool", name="SaveAssetCatalogRequest", has_base=False),
    _exchange("AssetSystem::AssetChangeReport",
              "EF108E73-08F7-4CBC-A808-61A2EC544A6E 1 FromPath:os ToPath:os ChangeType:u32 IsFolder:bool",
              "C18891A7-794D-4270-93AE-7D0C2ECABB5C 2 Report:texts Success:bool",
              "answered: aptui previews, moves or deletes one file, or all files of a folder; a move also updates references"),
    _exchange("AssetSystem::ShowAssetInAssetProcessor", "04A068A0-58D7-4404-ABAD-AED72287FFE8 1 AssetPath:os", None,
              "answered: all open screens show the asset", has_base=False),
    _exchange("AssetSystem::ShowWindow", "509CA545-1213-4064-9B58-6FFE3DDD27D3 0", None,
              "refused: the engine has a screen, not a window; run 'aptui' in a terminal", name="ShowAssetProcessorRequest",
              has_base=False),
    _exchange("AssetSystem::UpdateSourceControlStatusRequest", "B313400A-3E5D-496F-BD91-09B9C10EBDF0 1 SourceControlEnabled:bool",
              None,
              "refused: aptui uses Git only for moves and deletions with the switch 'enablescm', or with the Git option of its own "
              "verbs", has_base=False),
    _exchange("AssetProcessor::RegisterSourceAssetRequest",
              "189C6045-E1D4-4D78-B0E7-2BB7BD05FDE1 1 AssetType:uuid AssetFileFilter:os", None,
              "answered: requests about assets of this type get the source, not the product"),
    _exchange("AssetProcessor::UnregisterSourceAssetRequest", "CE3CF055-CF91-4851-9E2C-CB24B2B172D3 1 AssetType:uuid", None,
              "accepted and ignored, as in O3DE: the type stays registered"),
    _exchange("AssetSystem::FileOpen", "C230ADF3-970D-4A4D-A128-112C9E2DC164 1 FilePath:os Mode:u32",
              "50EC3F69-C6F6-4835-964B-155112B37EDC 1 FileHandle:u32 ResultCode:u32"),
    _exchange("AssetSystem::FileClose", "D294976E-7664-436F-ACA4-7BCABAA2F5EC 1 FileHandle:u32"),
    _exchange("AssetSystem::FileRead",
              "9FC866C7-A9C0-41CB-BC41-A333240D3C7E 1 FileHandle:u32 BytesToRead:u64 FailOnFewerRead:bool",
              "FFD02544-A10A-42B2-9899-54D7F6C426ED 1 ResultCode:u32 Data:bytes"),
    _exchange("AssetSystem::FileWrite", "4CB9EBC7-ACB9-45DC-9D58-2E8BDF975E12 1 FileHandle:u32 Data:bytes",
              "6EBE6BF5-3B7E-4C49-9B17-14025F5B80CA 1 ResultCode:u32 BytesWritten:u64"),
    _exchange("AssetSystem::FileTell", "EF11067E-5C35-4A3F-8BB2-FEC57C037E3F 1 FileHandle:u32",
              "18870776-D1FF-40DA-B78D-3A3BB40F20F8 1 ResultCode:u32 Offset:u64"),
    _exchange("AssetSystem::FileSeek", "B6E9C144-8033-416D-8E90-0260BE32E164 1 FileHandle:u32 Mode:u32 Offset:s64",
              "D6D1AD08-1051-4E0D-8F08-41C2460747F3 1 ResultCode:u32"),
    _exchange("AssetSystem::FileFlush", "0313BA96-2844-4007-9EB8-B98831CA68C7 1 FileHandle:u32",
              "8085022A-58DB-4CB4-A81C-B32B4B6DBB0A 1 ResultCode:u32"),
    _exchange("AssetSystem::IsReadOnly", "408CBD3D-582B-4C78-968D-00BDA9B7CBF3 1 FilePath:os",
              "E0FC20EC-2563-47DE-9D6B-ADCEB14ED70E 1 IsReadOnly:bool", name="FileIsReadOnlyRequest"),
    _exchange("AssetSystem::IsDirectory", "0F35F08C-4F93-4EA5-8C98-7FB923160A39 1 Path:os",
              "24BCC53E-1364-4C1E-BB19-7346CB3A2E7D 1 IsDirectory:bool", name="PathIsDirectoryRequest"),
    _exchange("AssetSystem::FileSize", "08F67CF7-A91A-498E-A010-7E3FCDE959FC 1 FilePath:os",
              "8FA2402C-5ED4-4B5B-BF64-71D3888A4F0D 1 ResultCode:u32 Size:u64"),
    _exchange("AssetSystem::FileModTime", "AFE37457-7EBE-4432-A6CA-78EEDF82F760 1 FilePath:os",
              "4F347EBF-74C5-4963-807B-11CB7268AD08 1 ModTime:u64"),
    _exchange("AssetSystem::FileExists", "82751F22-4441-42E7-8187-4D84B97BD2AD 1 FilePath:os",
              "D5B51BB4-4683-476E-BC2F-6906D17EE028 1 Exists:bool"),
    _exchange("AssetSystem::PathCreate", "C7DF8777-2497-4473-8F33-AFD5A4015497 1 Path:os",
              "8FA23D48-93E4-453A-BBC3-58C831265B42 1 ResultCode:u32"),
    _exchange("AssetSystem::PathDestroy", "628A4C23-1F32-4A35-91F0-C7DFB76FAA9C 1 Path:os",
              "850AEAB7-E3AD-4BD4-A08E-78A4E3A62D73 1 ResultCode:u32"),
    _exchange("AssetSystem::FileRemove", "3EB05CEF-D98A-47EC-A688-A485EFB11DC6 1 FilePath:os",
              "1B81110E-7004-462A-98EB-12C3D73477BB 1 ResultCode:u32"),
    _exchange("AssetSystem::FileCopy", "2107C8FD-8150-44A1-B984-AA70D9FD36E2 1 SourcePath:os DestPath:os",
              "968DBCE3-2916-47F4-8AB2-A2E12179FB49 1 ResultCode:u32"),
    _exchange("AssetSystem::FileRename", "188FD344-DDE2-4C25-BBE0-360F2022B276 1 SourcePath:os DestPath:os",
              "F553AC26-7C05-4C1B-861D-6C8D934E151D 1 ResultCode:u32"),
    _exchange("AssetSystem::FindFiles", "66355EF6-B91F-4E2E-B50A-F59F6E46712D 1 Path:os Filter:os",
              "422C7AD1-CEA7-4E1C-B098-687B2A68116F 1 ResultCode:u32 Files:names"),
    _exchange("AssetSystem::FileTree", "6838CC3C-2CF1-443C-BFBF-A530003B6A71 1",
              "0F7854DA-63FA-4D59-B298-53D84150DFF9 1 ResultCode:u32 Files:names Folders:names"),
)  # fmt: skip
"""All known requests. Other requests get an empty answer; O3DE's client treats that as a failure, and stays connected."""
BY_TYPE = {each.type_number: each for each in EXCHANGES}

CHANGE = Shape("AssetNotificationMessage", uuid_bytes(_CHANGE_ID), _CHANGE_VERSION, _CHANGE_FIELDS)
CHANGES = _shape("BulkAssetNotificationMessage", "D0BDFFA1-2E5A-4F37-A38D-26521ECAF812 1 Type:u32 Messages:changes")
SOURCE = _shape(
    "SourceFileNotificationMessage",
    "61126952-242A-4299-B1D6-4D0E24DB1B06 2 RelativeSourcePath:os ScanFolder:os NotificationType:u32 SourceUUID:uuid",
)
SHOW = _shape("AssetBrowserShowRequest", "D44903DD-45D8-4CBA-8A9D-C9D5E7FFB0A6 1 FilePath:os")
NOTIFICATIONS = {
    CHANGE.name: "AssetProcessorManager::AssetNotification",
    CHANGES.name: "AssetProcessorManager::BulkAssetNotification",
    SOURCE.name: "AssetProcessorManager::SourceFileNotification",
    SHOW.name: "AssetSystem::AssetBrowserShowRequest",
}
"""{class of a notification: its name in the protocol}; the CRC of this name is the type in a frame."""
SENT = {
    "AssetNotificationMessage": "sent to clients of the platform, in the order of the events: AssetChanged, AssetRemoved, "
    "JobStarted, JobCompleted, JobFailed. A client gets the JobStarted of a job before the AssetChanged of its products; a short "
    "job has already ended at that time. JobCount is the total of all platforms. Not sent: JobFileClaimed, JobFileReleased",
    "BulkAssetNotificationMessage": "sent after the negotiation: all products of the client's platforms, 1,000 in each message",
    "SourceFileNotificationMessage": "sent: FileChanged, FileRemoved, FileFailed",
    "AssetBrowserShowRequest": "sent to the Editor when a user shows an asset there",
}
"""{notification: what it reports}."""
UNSERVED = {
    "FileInfosNotificationMessage": "not sent: a file's id in aptui's asset database differs from its id in O3DE's asset database",
    "WantAssetBrowserShowRequest": "not sent: it permits the Editor to show its window; on Linux, no permission is needed",
    "GetAbsoluteAssetDatabaseLocationRequest": "answered with an empty message: O3DE's programs cannot read the tables of "
    "aptui's asset database",
    "BuilderHelloRequest, CreateJobsRequest, ProcessJobRequest": "answered with an empty message: aptui runs builders in its own "
    "workers",
}
"""{message: why it is not served}."""
