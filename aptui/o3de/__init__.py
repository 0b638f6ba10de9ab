"""Open 3D Engine's dialect: its projects, settings and forms, translated into the engine's own terms.

Four programs of the reference stand over it (`o3de_programs`). What each switch does is said by `--help` and by the page
`aptui/O3DE.md` (`aptui docs o3de`), from the tables that the programs read (`switches`, `builder_switches`, `bundler.switches`):

AssetProcessorBatch, AssetProcessor
    Work: all that the reference documents, but for the following.
    Accepted, and ignored, with the reason: disableFileCache, truncatefingerprint, enableQueryLogging, start-hidden,
    ap_disableAssetTreeView, sortJobsByDBSourceName. Others than the table's are ignored, and named.
    `--help` prints and ends: nobody who asks for help wants to wait for a build.
AssetBuilder
    Work: debug, debug_create, debug_process, task=debug…, input, project-path, gamename, engine-path, project-cache-path,
    regset, regremove. Accepted, and ignored: port, id, project-name, module, output, register.
    Refused: task=resident, register, create, process, which are for children of the reference's asset processor.
AssetBundlerBatch
    Work: seeds, assetLists, comparisonRules, compare, bundleSettings, bundles, bundleSeed, help, with every switch that the
    reference documents. Accepted, and ignored: ignoreFileCase. Refused: bundleVersion=3; a switch that a command does not have.

Not there: builders written in C++, the network protocol of Editor and launchers (who connects is turned away, and told), windows.
Read and written in O3DE's form: settings registry, BuilderConfig.ini, asset database, `.meta`, logs, seed lists, asset lists,
rules, bundle settings, bundles, and the runtime's catalog.
"""
