"""Work with policies and tasks as functions: load, evaluate, film, compare, count, export, train.

It also groups runs that differ by their seeds. All commands but doctor and verify call its functions.
"""
