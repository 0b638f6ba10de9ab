"""Rules of sharing: which builders' results are stored on this machine, and which are shared with a team; not where.

Tests: `tests/test_linear_patterns.py`.
"""

from __future__ import annotations

import re

from aptui.config.model import SharedCacheSettings


class SharingRules:
    """What the configuration says about taking part.

    A builder that is named is as it is said there. Otherwise, where there are patterns, a source takes part that an enabled
    one matches, or whose builder has the name of one, as with O3DE's `ACS` recognizers.
    """

    def __init__(self, sharing: SharedCacheSettings) -> None:
        self._by_builder = dict(sharing.builders)
        enabled = [rule for rule in sharing.patterns if rule.is_enabled]
        self._has_patterns = bool(sharing.patterns)
        self._names = frozenset(rule.name for rule in enabled)
        self._matchers = [re.compile(rule.pattern.regex, re.IGNORECASE) for rule in enabled]

    def keeps(self, builder: str) -> bool:
        """Whether results of a builder are kept at all, on this machine too."""
        return self._by_builder.get(builder, True)

    def shares(self, builder: str, rel: str) -> bool:
        """Whether the result of a builder for a source is shared with others."""
        if builder in self._by_builder:
            return self._by_builder[builder]
        return not self._has_patterns or builder in self._names or any(regex.fullmatch(rel) for regex in self._matchers)
