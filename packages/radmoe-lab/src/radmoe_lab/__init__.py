"""radmoe-lab: small MoE models with their tasks, trainer and rollouts. `radmoe_lab.models.weights` gives a model's
directory.
"""
