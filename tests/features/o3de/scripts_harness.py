"""An O3DE-like project whose builders are scripts of the tests, run by a real engine with real workers."""

from __future__ import annotations

import textwrap
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from msgspec.structs import replace

from aptui.config import load as config_load
from aptui.core.project import Builder, BuilderKind
from aptui.features.o3de.scripts.python_builder import scripts_builder
from aptui.features.o3de.scripts.script_runner import Surroundings
from tests.disk_project import Project, Ran

SCRIPTS = Path("Editor/Scripts/bootstrap.py")
SETTINGS = """

platforms: {linux: {}}
scan_folders: [{name: assets, path: assets}]
builders: []
"""
BUS_ID = "{0C1D8E5A-59A4-4B5E-9C3B-2F5A7C5B1E01}"
HEAD = (
    "import azlmbr.asset\nimport azlmbr.asset.builder\nimport azlmbr.bus\nimport azlmbr.math\n"
    "from azlmbr.asset import builder as api\n"
)
REGISTER = """
def register(name, bus_id, on_create, on_process, pattern="*.mock", **more):
    wanted = api.AssetBuilderPattern()
    wanted.pattern = pattern
    wanted.type = more.pop("kind", api.AssetBuilderPattern_Wildcard)
    description = api.AssetBuilderDesc()
    description.name, description.patterns, description.version = name, [wanted], 1
    description.busId = azlmbr.math.Uuid_CreateString(bus_id, 0)
    for key, value in more.items():
        setattr(description, key, value)
    outcome = api.PythonAssetBuilderRequestBus(azlmbr.bus.Broadcast, "RegisterAssetBuilder", description)
    if not outcome.IsSuccess():
        raise RuntimeError(outcome.GetError())
    handler = api.PythonBuilderNotificationBusHandler()
    handler.connect(description.busId)
    handler.add_callback("OnCreateJobsRequest", on_create)
    handler.add_callback("OnProcessJobRequest", on_process)
    return handler
"""
CREATE = """
def create(args):
    request, response = args[0], api.CreateJobsResponse()
    for platform in request.enabledPlatforms:
        job = api.JobDescriptor()
        job.jobKey = "Mock"
        job.set_platform_identifier(platform.identifier)
        response.createJobOutputs.append(job)
    response.result = api.CreateJobsResponse_ResultSuccess
    return response
"""
PROCESS = """
import binascii, os

def process(args):
    request = args[0]
    name = os.path.splitext(request.sourceFile)[0] + ".mock_asset"
    path = os.path.join(request.tempDirPath, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write("made")
    asset_type = azlmbr.math.Uuid_CreateString("{7B1F0E52-6C3D-4A8E-9D27-51C0A2E4B6F8}", 0)
    product = api.JobProduct(name, asset_type, binascii.crc32(name.encode()))
    product.dependenciesHandled = True
    response = api.ProcessJobResponse()
    response.outputProducts = [product]
    response.resultCode = api.ProcessJobResponse_Success
    response.dependenciesHandled = True
    return response
"""
MOCK = f'{HEAD}{REGISTER}{CREATE}{PROCESS}\nhandler = register("Crate Builder", "{BUS_ID}", create, process)\n'


def processing(body: str) -> str:
    """Return a script that processes a job with `body`, which can use `request`, `response` (a success) and `api`."""
    code = textwrap.indent(textwrap.dedent(body), "    ")
    process = (
        f"def process(args):\n    request, response = args[0], api.ProcessJobResponse()\n    response.resultCode = 0\n{code}\n"
        f"    return response\n"
    )
    return f'{HEAD}import os, sys\n{REGISTER}{CREATE}{process}\nhandler = register("Crate Builder", "{BUS_ID}", create, process)\n'


class ScriptedProject(Project):
    """A project with scripts in gems ("Gems/NAME") and in the project's own folder ("")."""

    def __init__(self, root: Path, *homes: str, settings: str = SETTINGS) -> None:
        super().__init__(root, settings)
        self.homes = homes or ("",)

    def script(self, code: str, home: str = "", name: str = SCRIPTS.name) -> Path:
        """Write the bootstrap file of a gem or of the project, or another file in the same folder."""
        return self.write(str(Path(home, SCRIPTS).with_name(name)), code)

    def stand_in(self, platforms: tuple[str, ...] = ("linux",)):
        """Return a tuple with one builder, which stands for all builders of scripts in the configuration."""
        scripts = tuple(str(path) for home in self.homes if (path := self.root / home / SCRIPTS).is_file())
        around = Surroundings(scripts, str(self.root), str(self.root))
        return (scripts_builder(around, platforms, Builder(b"", "", BuilderKind.PYTHON)),) if scripts else ()

    @contextmanager
    def configured(self):
        """Add the scripts to the configuration, as an O3DE project does."""
        load = config_load.load

        def with_scripts(*arguments, **more):
            loaded = load(*arguments, **more)
            builders = (*loaded.project.builders, *self.stand_in(tuple(each.id for each in loaded.project.platforms)))
            return replace(loaded, project=replace(loaded.project, builders=builders))

        with mock.patch.object(config_load, "load", with_scripts):
            yield

    def engine_run(self, *edits, **more) -> Ran:
        """Run an engine over sources and scripts."""
        with self.configured():
            return super().engine_run(*edits, **more)
