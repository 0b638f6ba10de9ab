"""The first file that an asset processor runs: copy both to `<project>/Editor/Scripts/`, or a gem's, and add your own builders."""

import stand_ins

stand_ins.register_all()
