"""Work with policies and tasks as functions: load, evaluate, film, compare, count, export, train.

Every command of `cli/` calls a function of this room.
"""
