"""The text of `stories/scripted.py`, for projects that copy it into their `builders/` folder."""

from pathlib import Path

SCRIPTED = (Path(__file__).parent / "stories" / "scripted.py").read_text()
