"""From readings to alerts, to marks, to patches. Begin with `alerts`."""
