"""Parts of the compiler: the merged tree, platforms, scan folders, builders, shared results; `config.compiler` joins them."""
