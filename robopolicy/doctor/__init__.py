"""Checks of this machine. The package needs Python only, since any dependency may be broken."""
