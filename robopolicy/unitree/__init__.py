"""The bridge to Unitree's robots: their DDS messages, a low level that drives them, and its safe stop."""
