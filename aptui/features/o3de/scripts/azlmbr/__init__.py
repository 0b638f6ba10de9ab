"""Stand-in for O3DE's Python module `azlmbr` with the parts for asset builders; other names are refused.

Scripts import it as `azlmbr`, and only in worker processes: `script_runner` installs it there. Names inside are O3DE's.
"""

from __future__ import annotations

from aptui.features.o3de.scripts.azlmbr.reflected import refusing

__getattr__ = refusing("azlmbr")
