"""What all shells need of the machine that they run on."""
