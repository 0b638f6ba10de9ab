"""The commands of `AssetBundlerBatch`."""
