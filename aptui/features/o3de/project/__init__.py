"""An O3DE project read into the configuration that the compiler takes: layout, gems, scan folders, rules."""
