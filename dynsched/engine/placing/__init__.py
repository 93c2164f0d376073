"""By which new pods go, and what came of it. Begin with `score`."""
