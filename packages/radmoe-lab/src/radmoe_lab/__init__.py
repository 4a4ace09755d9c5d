"""The weights of radmoe's lab models, under `weights`. `radmoe_lab.models.weights` gives the directory of one."""
