"""The paper's analyses: one module per table or figure."""
