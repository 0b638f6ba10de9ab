"""Files of O3DE's Asset Bundler: seed lists, asset lists, rules, bundle settings, bundles; not the programs that use them."""
