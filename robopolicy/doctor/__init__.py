"""Checks of this machine for `robopolicy doctor`. They need Python alone: any dependency may be broken."""
