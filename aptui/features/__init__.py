"""The table of features that ship: optional capabilities, one folder each, with everything that belongs to them.

`aptui.feature` says what a feature declares. To remove one, delete its folder and its line here.

Tests: `tests/test_feature.py`.
"""

FEATURES = (
    "graph",
    "insight",
    "relocation",
    "shipping",
    "sharing",
    "gateway",
    "cluster",
    "o3de",
)
