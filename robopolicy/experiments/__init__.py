"""Work with policies and tasks as functions: load, evaluate, film, compare, count, export, train.

It also groups runs that differ by their seeds. Every command of `cli/` calls a function of this room.
"""
