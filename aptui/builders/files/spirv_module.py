"""Reads the interface of a SPIR-V module: bindings, push constants, inputs, outputs and constants.

The functions of the module are not read. Types have their names in GLSL. The result is the content of the `shader` builder's
reflection product. Section numbers refer to the SPIR-V specification.

Tests: `tests/builders/test_spirv_module.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from aptui.builders.common import SourceError, describe_damage

_MAGIC = 0x07230203
_STAGES = {
    0: "vert", 1: "tesc", 2: "tese", 3: "geom", 4: "frag", 5: "comp", 5267: "task", 5268: "mesh", 5364: "task", 5365: "mesh",
    5313: "rgen", 5314: "rint", 5315: "rahit", 5316: "rchit", 5317: "rmiss", 5318: "rcall",
}  # fmt: skip
_DIMENSIONS = {0: "1D", 1: "2D", 2: "3D", 3: "Cube", 4: "2DRect", 5: "Buffer", 6: "subpassInput"}
_VECTORS = {"float": "", "int": "i", "uint": "u", "bool": "b", "double": "d", "float16_t": "f16"}
_SPEC_ID, _BUFFER_BLOCK, _ROW_MAJOR, _ARRAY_STRIDE, _MATRIX_STRIDE, _BUILT_IN = 1, 3, 4, 6, 7, 11
_NON_WRITABLE, _NON_READABLE, _LOCATION, _BINDING, _SET, _OFFSET = 24, 25, 30, 33, 34, 35
_CONSTANT, _INPUT, _UNIFORM, _OUTPUT, _PUSH_CONSTANT, _STORAGE_BUFFER = 0, 1, 2, 3, 9, 12
_LOCAL_SIZE, _LOCAL_SIZE_ID = 17, 38
_WORKGROUP_SIZE = 25

Object = dict[str, Any]


MOST_MEMBERS = 20_000
"""Maximum number of members of all blocks together: nested structs can expand to far more members than the module lists."""


class BrokenSpirvError(SourceError):
    """The module cannot be read."""


def reflect(data: bytes) -> Object:
    """Return the interface of a module: {entry_points, inputs, outputs, bindings, push_constants, constants}.

    Raises:
        BrokenSpirvError: `data` is not a SPIR-V module, or is damaged.
    """
    try:
        return _Module(data).describe()
    except (KeyError, IndexError, ValueError, struct.error, RecursionError) as error:
        raise BrokenSpirvError(f"the SPIR-V module is damaged: {describe_damage(error)}") from None


class _Module:
    """The declarations of a module by their ids."""

    def __init__(self, data: bytes) -> None:
        if len(data) < 20 or len(data) % 4 or struct.unpack_from("<I", data)[0] != _MAGIC:
            raise BrokenSpirvError("the output of the compiler is not a SPIR-V module")
        self._words = struct.unpack(f"<{len(data) // 4}I", data)
        self._names: dict[tuple[int, int], str] = {}
        """{(id of an object, index of a member or -1 for the object itself): name}"""
        self._decorations: dict[tuple[int, int], dict[int, int]] = {}
        """{(id of an object, index of a member or -1 for the object itself): {decoration: operand}}"""
        self._types: dict[int, tuple[int, tuple[int, ...]]] = {}
        """{id of a type: (opcode, operands)}"""
        self._constants: dict[int, tuple[int, int, tuple[int, ...]]] = {}
        """{id of a constant: (opcode, type, words)}"""
        self._variables: list[tuple[int, int, int]] = []
        """Variables as (id, type, storage class)"""
        self._entries: list[tuple[int, int, str]] = []
        """Entry points as (execution model, function, name)"""
        self._sizes: dict[int, list[int]] = {}
        """{id of an entry point's function: workgroup size}"""
        self._member_count = 0
        self._read()

    def _read(self) -> None:
        at = 5
        while at < len(self._words):
            count, opcode = self._words[at] >> 16, self._words[at] & 0xFFFF
            if not count or at + count > len(self._words):
                raise BrokenSpirvError(f"the SPIR-V module is damaged at byte {4 * at:,}")
            if opcode == 54:  # OpFunction follows the last declaration (§2.4)
                break
            self._declare(opcode, self._words[at + 1 : at + count])
            at += count

    def _declare(self, opcode: int, words: tuple[int, ...]) -> None:
        match opcode:
            case 5:  # OpName
                self._names[words[0], -1] = _text(words[1:])
            case 6:  # OpMemberName
                self._names[words[0], words[1]] = _text(words[2:])
            case 15:  # OpEntryPoint
                self._entries.append((words[0], words[1], _text(words[2:])))
            case 16 if words[1] == _LOCAL_SIZE:  # OpExecutionMode
                self._sizes[words[0]] = list(words[2:5])
            case 331 if words[1] == _LOCAL_SIZE_ID:  # OpExecutionModeId
                self._sizes[words[0]] = [-each for each in words[2:5]]
            case 71:  # OpDecorate
                self._decorations.setdefault((words[0], -1), {})[words[1]] = words[2] if len(words) > 2 else 1
            case 72:  # OpMemberDecorate
                self._decorations.setdefault((words[0], words[1]), {})[words[2]] = words[3] if len(words) > 3 else 1
            case 59:  # OpVariable
                self._variables.append((words[1], words[0], words[2]))
            case _ if 41 <= opcode <= 44 or 48 <= opcode <= 51:  # OpConstant… and OpSpecConstant…
                self._constants[words[1]] = (opcode, words[0], words[2:])
            case _ if 19 <= opcode <= 32 or opcode == 5341:  # OpType…
                if words[0] in self._types or (opcode in (28, 29) and words[1] not in self._types):
                    raise BrokenSpirvError("a type of the SPIR-V module refers to itself")
                self._types[words[0]] = (opcode, words[1:])

    # ---------------------------------------------------------------------------------------------------------------- result

    def describe(self) -> Object:
        """Return the whole interface; its lists are sorted by binding, location or constant id."""
        bindings = sorted(self._bindings(), key=lambda each: (each["set"], each["binding"], each["name"]))
        constants = sorted(self._specialisation_constants(), key=lambda each: int(each["id"]))
        pushed = [self._block(self._pointee(kind)[0], name) for name, kind, where in self._variables if where == _PUSH_CONSTANT]
        return {
            "entry_points": [self._entry(*entry) for entry in self._entries],
            "inputs": self._interface(_INPUT),
            "outputs": self._interface(_OUTPUT),
            "bindings": bindings,
            "push_constants": pushed,
            "constants": constants,
        }

    def _entry(self, model: int, function: int, name: str) -> Object:
        found: Object = {"name": name, "stage": _STAGES.get(model, str(model))}
        size = self._sizes.get(function)
        for (target, member), decorations in self._decorations.items():
            if member == -1 and decorations.get(_BUILT_IN) == _WORKGROUP_SIZE and target in self._constants:
                size = [-each for each in self._constants[target][2]]
        if size:  # a negative number is the negated id of a constant
            found["workgroup_size"] = [int(self._value(-each)) if each < 0 else each for each in size]
        return found

    def _interface(self, where: int) -> list[Object]:
        found = []
        for name, kind, storage in self._variables:
            if storage != where:
                continue
            target, _ = self._pointee(kind)
            opcode, operands = self._types[target]
            parts = [(target, number, each) for number, each in enumerate(operands)] if opcode == 30 else []
            for holder, member, part in [(name, -1, target), *parts]:
                decorations = self._decorations.get((holder, member), {})
                if _LOCATION in decorations and _BUILT_IN not in decorations:
                    found.append({
                        "location": decorations[_LOCATION],
                        "name": self._names.get((holder, member), ""),
                        **self._type(part),
                    })  # fmt: skip
        return sorted(found, key=lambda each: (each["location"], each["name"]))

    def _bindings(self) -> Iterator[Object]:
        for name, kind, storage in self._variables:
            decorations = self._decorations.get((name, -1), {})
            if storage not in (_CONSTANT, _UNIFORM, _STORAGE_BUFFER) or _BINDING not in decorations:
                continue
            target, count = self._pointee(kind)
            found: Object = {"set": decorations.get(_SET, 0), "binding": decorations[_BINDING], "kind": self._kind(target, storage)}
            if self._types[target][0] == 30:
                found |= self._block(target, name)
                members = [self._decorations.get((target, each), {}) for each in range(len(self._types[target][1]))]
                marks = {each for each in (_NON_WRITABLE, _NON_READABLE) if members and all(each in one for one in members)}
            else:
                found |= {"name": self._names.get((name, -1), ""), "type": self._type(target)["type"]}
                marks = set()
            marks |= decorations.keys()
            if found["kind"].startswith("storage"):
                found["access"] = "read" if _NON_WRITABLE in marks else "write" if _NON_READABLE in marks else "read_write"
            yield {**found, **({"count": count} if count is not None else {})}

    def _pointee(self, pointer: int) -> tuple[int, int | None]:
        """Return (type, length) of a pointer's target.

        For an array of bindings `length` is its length (0 = unbounded), otherwise None.
        """
        target, count = self._types[pointer][1][1], None
        while self._types[target][0] in (28, 29):
            if self._types[self._types[target][1][0]][0] not in (25, 26, 27, 30, 5341):
                break  # this type is an array of numbers, not of bindings
            length = int(self._value(self._types[target][1][1])) if self._types[target][0] == 28 else 0
            count = length if count is None else count * length
            target = self._types[target][1][0]
        return target, count

    def _kind(self, target: int, storage: int) -> str:
        opcode, operands = self._types[target]
        if opcode == 30:
            is_storage = storage == _STORAGE_BUFFER or _BUFFER_BLOCK in self._decorations.get((target, -1), {})
            return "storage_buffer" if is_storage else "uniform_buffer"
        if opcode == 25:
            dimension, use = operands[1], operands[5]
            if dimension == 6:
                return "input_attachment"
            buffer = "texel_buffer" if dimension == 5 else "image"
            return f"storage_{buffer}" if use == 2 else "uniform_texel_buffer" if dimension == 5 else "image"
        return {26: "sampler", 27: "sampled_image", 5341: "acceleration_structure"}[opcode]

    def _block(self, target: int, variable: int) -> Object:
        """Return the names, size and members of a block, such as a uniform buffer."""
        name = self._names.get((variable, -1), "")
        return {
            "name": name or self._names.get((target, -1), ""),
            "block": self._names.get((target, -1), ""),
            "size": self._struct_size(target),
            "members": self._members(target),
        }

    def _members(self, target: int) -> list[Object]:
        found = []
        for number, kind in enumerate(self._types[target][1]):
            self._member_count += 1
            if self._member_count > MOST_MEMBERS:
                raise BrokenSpirvError(
                    f"the blocks of the shader have more than {MOST_MEMBERS:,} members together, which is the limit"
                )
            decorations = self._decorations.get((target, number), {})
            member: Object = {"name": self._names.get((target, number), ""), **self._type(kind)}
            if _OFFSET in decorations:
                member |= {"offset": decorations[_OFFSET], "size": self._size(kind, decorations)}
            if _ROW_MAJOR in decorations:
                member["row_major"] = True
            found.append(member)
        return found

    def _specialisation_constants(self) -> Iterator[Object]:
        for name, (_, kind, _) in self._constants.items():
            decorations = self._decorations.get((name, -1), {})
            if _SPEC_ID in decorations:
                value = self._value(name)
                yield {"id": decorations[_SPEC_ID], "name": self._names.get((name, -1), ""), **self._type(kind), "default": value}

    def _value(self, name: int) -> bool | int | float:
        """Return the value of a scalar constant, or the default of a specialisation constant."""
        opcode, kind, words = self._constants[name]
        if opcode in (41, 42, 48, 49):  # OpConstantTrue, OpConstantFalse, OpSpecConstantTrue, OpSpecConstantFalse
            return opcode in (41, 48)
        type_opcode, operands = self._types[kind]
        raw = struct.pack(f"<{len(words)}I", *words)
        if type_opcode == 22:
            return float(struct.unpack({16: "<e2x", 32: "<f", 64: "<d"}[operands[0]], raw)[0])
        return int.from_bytes(raw, "little", signed=bool(operands[1]))

    # ----------------------------------------------------------------------------------------------------------------- types

    def _type(self, kind: int) -> Object:
        """Return {type, array, members}.

        `array` is the list of an array's lengths (0 = unbounded), and is missing for other types. Only a struct, or an array of
        structs, has `members`.
        """
        lengths = []
        while self._types[kind][0] in (28, 29):
            lengths.append(int(self._value(self._types[kind][1][1])) if self._types[kind][0] == 28 else 0)
            kind = self._types[kind][1][0]
        found: Object = {"type": self._type_name(kind)}
        if lengths:
            found["array"] = lengths
        if self._types[kind][0] == 30:
            found["members"] = self._members(kind)
        return found

    def _type_name(self, kind: int) -> str:
        opcode, operands = self._types[kind]
        name = {20: "bool", 26: "sampler", 32: "pointer", 5341: "accelerationStructureEXT"}.get(opcode, "")
        if opcode == 21:
            name = f"{'int' if operands[1] else 'uint'}{'' if operands[0] == 32 else f'{operands[0]}_t'}"
        elif opcode == 22:
            name = {16: "float16_t", 32: "float", 64: "double"}[operands[0]]
        elif opcode == 23:
            scalar = self._type_name(operands[0])
            name = f"{_VECTORS.get(scalar, f'{scalar}_')}vec{operands[1]}"
        elif opcode == 24:
            vector, columns = self._type_name(operands[0]), operands[1]
            name = f"{vector[:-4]}mat{columns}" + (f"x{vector[-1]}" if vector[-1] != str(columns) else "")
        elif opcode == 25:
            name = self._image_name(operands, "image" if operands[5] == 2 else "texture")
        elif opcode == 27:
            name = self._image_name(self._types[operands[0]][1], "sampler")
        elif opcode == 30:
            name = self._names.get((kind, -1), "") or "struct"
        return name or f"type{opcode}"

    def _image_name(self, operands: tuple[int, ...], noun: str) -> str:
        sampled, dimension, depth, arrayed, multisampled = operands[:5]
        prefix = {"int": "i", "uint": "u"}.get(self._type_name(sampled) if self._types[sampled][0] != 19 else "", "")
        if dimension == 6:
            return f"{prefix}subpassInput{'MS' * multisampled}"
        suffix = "Shadow" if depth == 1 and noun == "sampler" else ""
        return f"{prefix}{noun}{_DIMENSIONS[dimension]}{'MS' * multisampled}{'Array' * arrayed}{suffix}"

    def _size(self, kind: int, decorations: dict[int, int]) -> int:
        """Return the size of a member in bytes, 0 for an unbounded array."""
        opcode, operands = self._types[kind]
        match opcode:
            case 21 | 22:
                return operands[0] // 8
            case 20:
                return 4
            case 23:
                return self._size(operands[0], decorations) * operands[1]
            case 24:
                rows = self._types[operands[0]][1][1]
                return decorations.get(_MATRIX_STRIDE, 16) * (rows if _ROW_MAJOR in decorations else operands[1])
            case 28:
                stride = self._decorations.get((kind, -1), {}).get(_ARRAY_STRIDE, 0)
                return stride * int(self._value(operands[1]))
            case 30:
                return self._struct_size(kind)
        return 8 if opcode == 32 else 0

    def _struct_size(self, target: int) -> int:
        ends = [member.get("offset", 0) + member.get("size", 0) for member in self._members(target)]
        return max(ends, default=0)


def _text(words: tuple[int, ...]) -> str:
    """Return a literal string (§2.2.1)."""
    return struct.pack(f"<{len(words)}I", *words).partition(b"\0")[0].decode("utf-8", "replace")
