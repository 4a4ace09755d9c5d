"""The weights of radmoe's lab models, under `weights`. `radmoe.lab.models.weights` gives the directory of one."""
