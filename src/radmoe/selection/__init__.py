"""Everything that chooses a rollout. Nothing here reads a label, and nothing but `overlap` and `closing` a text.

vocab -> closing, anchors    where a marker stands and where an answer ends, in token ids
layers, routes, readout      which rows of routing are read at an anchor, and the route vector of each rollout
kernels/                     similarity between route vectors, and density under it
confidence, overlap          what log-probabilities and the answers' text say, for the presets that use them
kinds                        the kind of an answer, told from the markers where nobody said it
rule                         the rule by which one rollout is chosen, and the presets: the one object for all options
selector                     the choice: `select`, `select_many`, `medoid`
online                       the same while rollouts arrive, and when to stop
origin, curves, calibration  how rollouts came about, and how probable it is that a pick of such rollouts is right
calibrations/                the calibrations that ship with the package
regime                       which method to use on a group, from what it shows without labels
"""
