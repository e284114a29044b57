"""The suite: formulas against oracles, the command line against its promises."""
