"""What several packages need of the machine that they run on."""
