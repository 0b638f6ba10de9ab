"""The table of features that ship: optional capabilities, one folder each, with everything that belongs to them.

`aptui.feature` says what a feature declares. To remove one, delete its folder and its line here.

Tests: `tests/test_feature.py`.
"""

FEATURES = {
    "graph": "",
    "insight": "",
    "relocation": "",
    "shipping": "",
    "sharing": "",
    "gateway": "",
    "cluster": "",
    "o3de": "project.json",
}
"""{feature: file that marks a folder as a project in the feature's own format (extension point `format`), "" for none}.

This table names the files, so that a start in a folder without any of them loads no feature.
"""
