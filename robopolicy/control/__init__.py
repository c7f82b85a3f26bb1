"""The low level of a quadruped: from its state and footholds to joint commands, without a simulator.

`robots.ROBOTS` has the tables of robots, `controller.Controller` runs the gait.
"""
