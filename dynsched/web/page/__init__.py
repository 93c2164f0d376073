"""The page for people at `/`: its data, the last hour, and the files that a browser loads."""
