#!/bin/sh
# From sources to bundles on a build server: process, list the dependencies of the seeds, pack, and pack a patch against an earlier list.
#
#   ci.sh PROJECT OUTPUT PLATFORM[,PLATFORM] SEED[,SEED] [EARLIER LIST]
#
# OUTPUT is a folder; SEED is a product, relative to its platform's folder in the cache. The script stops at the first error.
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
