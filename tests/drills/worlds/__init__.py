"""What the drills share: projects whose products are known beforehand, children to kill, programs, oracles."""
