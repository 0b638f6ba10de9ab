"""Examples of Python builders for an O3DE project, with the API of its gem PythonAssetBuilder (`azlmbr.asset.builder`).

Each replaces a builder that O3DE has in C++. Its products have the same shape (names, sub ids, dependencies), but a game cannot
load them: they show a team how to write its own. `register_all` registers:

prefab         *.prefab           -> .spawnable, which needs every asset in an "assetHint" of the text
image          *.png *.tif        -> .streamingimage (sub id 1000), which needs its .imagemipchain (1002)
scene          *.fbx *.gltf       -> .azmodel; <scene>.assetinfo with the settings is a dependency, even if it does not exist
script canvas  *.scriptcanvas     -> an intermediate .luacanvas for all platforms -> .scriptcanvas_compiled for each platform
xml            *.xml              -> itself; schemas/<root tag>.xmlschema lists the attributes that name assets
"""

import json
import os
import re
import zlib
from xml.etree import ElementTree as ET

import azlmbr.bus
import azlmbr.math
from azlmbr.asset import AssetId
from azlmbr.asset import builder as api

PRELOAD = 0
_handlers = []
"""Keeps the handlers alive."""


def register(name, uuid, patterns, analyse, process, version=1):
    """Register one builder; `analyse(request, response)` and `process(request, response)` fill in the response."""
    description = api.AssetBuilderDesc()
    description.name, description.version = name, version
    description.busId = azlmbr.math.Uuid_CreateString(uuid, 0)
    wanted = []
    for text in patterns:
        pattern = api.AssetBuilderPattern()
        pattern.pattern, pattern.type = text, api.AssetBuilderPattern_Wildcard
        wanted.append(pattern)
    description.patterns = wanted
    outcome = api.PythonAssetBuilderRequestBus(azlmbr.bus.Broadcast, "RegisterAssetBuilder", description)
    if not outcome.IsSuccess():
        raise RuntimeError(outcome.GetError())

    def create(args):
        response = api.CreateJobsResponse()
        analyse(args[0], response)
        response.result = api.CreateJobsResponse_ResultSuccess
        return response

    def run(args):
        response = api.ProcessJobResponse()
        process(args[0], response)
        response.resultCode = api.ProcessJobResponse_Success
        return response

    handler = api.PythonBuilderNotificationBusHandler()
    handler.connect(description.busId)
    handler.add_callback("OnCreateJobsRequest", create)
    handler.add_callback("OnProcessJobRequest", run)
    _handlers.append(handler)


def jobs(request, response, key, common=False):
    """Add one job for each platform, or one for all of them together."""
    for platform in ["common"] if common else [item.identifier for item in request.enabledPlatforms]:
        job = api.JobDescriptor()
        job.jobKey = key
        job.set_platform_identifier(platform)
        response.createJobOutputs.append(job)


def depends_on(response, path):
    """Run jobs again when another source is added, changed or deleted."""
    dependency = api.SourceFileDependency()
    dependency.sourceFileDependencyPath = path
    response.sourceFileDependencyList.append(dependency)


def add_product(request, response, suffix, data, sub_id=0, paths=(), ids=(), intermediate=False):
    """Write a product into the temporary folder, with the assets that it needs at run time."""
    stem, extension = os.path.splitext(os.path.basename(request.sourceFile))
    name = f"{stem}{extension if suffix.startswith('+') else ''}{suffix.lstrip('+')}"
    with open(os.path.join(request.tempDirPath, name), "wb") as file:
        file.write(data)
    product = api.JobProduct(name, azlmbr.math.Uuid_CreateString("", 0), sub_id)
    product.pathDependencies = [api.ProductPathDependency(path, api.ProductPathDependency_ProductFile) for path in paths]
    product.productDependencies = [api.ProductDependency(AssetId(request.sourceFileUUID, each), PRELOAD) for each in ids]
    product.dependenciesHandled = True
    if intermediate:
        product.outputFlags = api.JobProduct_IntermediateAsset
    response.outputProducts.append(product)


def read(request):
    """Return the bytes of the source."""
    with open(request.fullPath, "rb") as file:
        return file.read()


# ------------------------------------------------------------------------------------------------------------------ prefab


def process_prefab(request, response):
    """Write the JSON without blanks; text that is not JSON raises an error, which fails the job."""
    content = json.loads(read(request))
    hints = re.findall(r'"assetHint": ?"([^"]+)"', json.dumps(content))
    add_product(request, response, ".spawnable", json.dumps(content, separators=(",", ":")).encode(), paths=sorted(set(hints)))


# ------------------------------------------------------------------------------------------------------------------- image


def analyse_image(request, response):
    """Add a job for an image; its export settings are a dependency."""
    jobs(request, response, "Image Compile")
    depends_on(response, f"{request.sourceFile}.exportsettings")


def process_image(request, response):
    """Write the products of a streamed image: the first is small and needs the second."""
    data = read(request)
    add_product(request, response, "+.streamingimage", len(data).to_bytes(8, "big"), 1000, ids=[1002])
    add_product(request, response, "+.1002.imagemipchain", zlib.compress(data), 1002)


# ------------------------------------------------------------------------------------------------------------------- scene


def analyse_scene(request, response):
    """Add a job for a scene; its settings are a dependency."""
    jobs(request, response, "Scene compilation")
    depends_on(response, f"{request.sourceFile}.assetinfo")


def process_scene(request, response):
    """Write one model with the group names from the settings, so that a change of the settings is visible."""
    settings = f"{request.fullPath}.assetinfo"
    scene = json.loads(open(settings, encoding="utf-8").read()) if os.path.exists(settings) else {}
    groups = [group.get("name", "") for group in scene.get("values", [])] or [os.path.basename(request.sourceFile)]
    add_product(request, response, ".azmodel", "\n".join(groups).encode())


# ----------------------------------------------------------------------------------------------------------- script canvas


def process_canvas(request, response):
    """Write the intermediate for all platforms; each platform processes it to its own product."""
    nodes = sorted(re.findall(r'"Name": ?"([^"]+)"', read(request).decode()))
    add_product(request, response, ".luacanvas", "\n".join(nodes).encode(), intermediate=True)


def process_lua_canvas(request, response):
    """Compile the intermediate: the last step of the chain."""
    add_product(request, response, ".scriptcanvas_compiled", zlib.compress(read(request)))


# ----------------------------------------------------------------------------------------------------------- xml by schema


def _schema_of(full):
    root = ET.parse(full).getroot().tag
    return f"schemas/{root.lower()}.xmlschema"


def analyse_xml(request, response):
    """Add a job for an XML file; the schema of its root tag is a dependency."""
    jobs(request, response, "XML")
    depends_on(response, _schema_of(os.path.join(request.watchFolder, request.sourceFile)))


def process_xml(request, response):
    """Write the file itself; a schema is JSON: {element: the attribute that names an asset}."""
    path = os.path.join(request.watchFolder, _schema_of(request.fullPath))
    schema = json.loads(open(path, encoding="utf-8").read()) if os.path.exists(path) else {}
    found = [element.get(schema[element.tag]) for element in ET.parse(request.fullPath).iter() if element.tag in schema]
    add_product(request, response, "+", read(request), paths=sorted({each for each in found if each}))


def _one_job(key, common=False):
    return lambda request, response: jobs(request, response, key, common)


def register_all():
    """Register all builders."""
    ids = [f"{{6B6A51D0-9A1D-4C39-8B92-0D7E6C3A8F0{at}}}" for at in range(1, 7)]
    register("Prefab example", ids[0], ["*.prefab"], _one_job("Prefabs"), process_prefab)
    register("Image example", ids[1], ["*.png", "*.tif"], analyse_image, process_image)
    register("Scene example", ids[2], ["*.fbx", "*.gltf"], analyse_scene, process_scene)
    register("Script canvas example", ids[3], ["*.scriptcanvas"], _one_job("Script Canvas", common=True), process_canvas)
    register("Lua canvas example", ids[4], ["*.luacanvas"], _one_job("Compile"), process_lua_canvas)
    register("XML example", ids[5], ["*.xml"], analyse_xml, process_xml)
