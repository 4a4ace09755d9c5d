// experts
