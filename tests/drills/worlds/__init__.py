"""Parts that the drills share: projects with predictable products, children to kill, programs, oracles."""
