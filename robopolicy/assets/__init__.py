"""Files of the package: the robot models, and the trained policies with their logs and evaluations."""
