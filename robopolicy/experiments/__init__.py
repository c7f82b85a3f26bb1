"""What people do with policies: load, play, evaluate, film, compare, count, export and train them.

Every command of `cli/` is a shell around a function of this room.
"""
