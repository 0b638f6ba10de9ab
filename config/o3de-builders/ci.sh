#!/bin/sh
# From sources to bundles, as a build server does it: process, list what the seeds need, pack, and pack a patch against an earlier list.
#
#   ci.sh PROJECT OUTPUT PLATFORM[,PLATFORM] SEED[,SEED] [EARLIER LIST]
#
# OUTPUT is a folder; SEED a product, relative to its platform's folder in the cache. The first step that fails ends it.
set -eu
project=$1 output=$2 platforms=$3 seeds=$4 earlier=${5-}
mkdir -p "$output"

AssetProcessorBatch --project-path="$project" --platforms="$platforms" --zeroAnalysisMode
AssetBundlerBatch seeds --project-path="$project" --seedListFile="$output/game.seed" --addSeed="$seeds" --platform="$platforms"
AssetBundlerBatch assetLists --project-path="$project" --assetListFile="$output/game.assetlist" --seedListFile="$output/game.seed" \
    --addDefaultSeedListFiles --platform="$platforms" --allowOverwrites
AssetBundlerBatch bundles --project-path="$project" --assetListFile="$output/game.assetlist" --outputBundlePath="$output/game.pak" \
    --platform="$platforms" --maxSize=1024 --allowOverwrites
if [ -n "$earlier" ]; then
    AssetBundlerBatch compare --project-path="$project" --comparisonType=delta --firstAssetFile="$earlier" \
        --secondAssetFile="$output/game.assetlist" --output="$output/patch.assetlist" --platform="$platforms" --allowOverwrites
    AssetBundlerBatch bundles --project-path="$project" --assetListFile="$output/patch.assetlist" --outputBundlePath="$output/patch.pak" \
        --platform="$platforms" --allowOverwrites
fi
