"""Stand-in for O3DE's Python module `azlmbr`, with only the parts for asset builders; a script that uses other names fails.

Scripts import it as `azlmbr`, and only in worker processes: `script_runner` installs it there. Its classes and functions have
O3DE's names.
"""

from __future__ import annotations

from aptui.features.o3de.scripts.azlmbr.reflected import refusing

__getattr__ = refusing("azlmbr")
