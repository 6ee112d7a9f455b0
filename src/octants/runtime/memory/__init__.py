"""Memory of the host and of devices: access, copies, fills, versions."""
