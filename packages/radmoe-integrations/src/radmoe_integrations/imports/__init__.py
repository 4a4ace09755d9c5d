"""Rollouts of RL frameworks and servers, with their routing, as pools.

pickled     a pickle as data: nothing that it names is looked up or called
tensors     the tensors of a file that torch.save wrote, read from their place in the file
found       one rollout as a file has it, and the checks that it has to pass
slime       slime's --save-debug-rollout-data
verl        verl's batches: rollout.skip's gen_batch.dp, or a dict of tensors
responses   raw responses of vLLM, SGLang and prime-rl's inference server, as JSON lines
work        files become a pool, and rewards its labels
"""
