// rollouts
