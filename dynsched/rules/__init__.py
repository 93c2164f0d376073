"""Rules files: read, checked, with the place of each error."""
