// problem
