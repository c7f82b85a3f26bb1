"""The bimanual sweep: two arms with spatulas, balls and bowls, and the demonstrator."""
