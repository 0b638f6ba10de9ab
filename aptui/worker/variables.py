"""Environment variables of builders: each call sees only the variables that the configuration names for its builder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from aptui.core.project import Builder, BuilderKind

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
"""Environment variable with the number of threads of OpenBLAS, numpy's matrix library.

Each thread uses a core for 60 ms after numpy is imported, and the results of matrix products may depend on the number of threads.
Commands get the variable only if the configuration names it.
"""


def values_of(builders: Iterable[Builder]) -> tuple[tuple[str, bytes], ...]:
    """Return (name, value) of all variables of this process that these builders name; variables that are not set are left out."""
    names = sorted({name for builder in builders for name, _digest in builder.variables})
    return tuple((name, os.environb[name.encode()]) for name in names if name.encode() in os.environb)


class BuilderVariables:
    """Sets, for each call of a builder, the variables that the configuration names for the builder.

    Builders in Python also get one thread of OpenBLAS, because each worker should use one core.

    Args:
        values: (name, value) of the variables that are set in the engine's environment.
    """

    def __init__(self, builders: Sequence[Builder], values: Sequence[tuple[str, bytes]]) -> None:
        own = {builder.name: {name for name, _digest in builder.variables} for builder in builders}
        inherited = {name: os.environb.get(name.encode()) for names in (*own.values(), [_BLAS_THREADS]) for name in names}
        known = dict(values)
        self._of = {
            builder: {name: known.get(name) if name in names else value for name, value in inherited.items()}
            for builder, names in own.items()
        }
        for builder in builders:
            if builder.kind is BuilderKind.PYTHON and _BLAS_THREADS not in own[builder.name]:
                self._of[builder.name][_BLAS_THREADS] = b"1"
        self._environments: dict[str, Mapping[str, str]] = {}

    def apply(self, builder: str) -> None:
        """Set the environment variables that `builder` declares, and remove those that only other builders declare."""
        for name, value in self._of.get(builder, {}).items():
            if value is None:
                os.environb.pop(name.encode(), None)
            else:
                os.environb[name.encode()] = value

    def environment(self, builder: str) -> Mapping[str, str]:
        """Return all variables of a builder's commands as a cached dict; reading `os.environ` for each command is too slow."""
        found = self._environments.get(builder)
        if found is None:
            self.apply(builder)
            found = self._environments[builder] = dict(os.environ)
        return found
