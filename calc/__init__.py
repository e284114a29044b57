"""The calculator: formulas, models, machines, answers, and the command line."""
