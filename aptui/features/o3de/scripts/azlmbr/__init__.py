"""Stand-in for O3DE's Python module `azlmbr`, as far as asset builders use it; all else is refused by name.

Scripts see it as `azlmbr`, and only in worker processes: `script_room.install` puts it there. Names inside are O3DE's.
"""

from __future__ import annotations

from aptui.features.o3de.scripts.azlmbr.reflected import refusing

__getattr__ = refusing("azlmbr")
