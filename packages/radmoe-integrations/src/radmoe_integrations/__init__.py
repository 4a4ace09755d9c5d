"""radmoe where people already are: RL frameworks, data sets, inspect_ai and lm-eval."""
