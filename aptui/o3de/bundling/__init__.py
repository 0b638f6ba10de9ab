"""Files of O3DE's Asset Bundler: seed lists, asset lists, rules, bundle settings, bundles; who asks for them is not here."""
