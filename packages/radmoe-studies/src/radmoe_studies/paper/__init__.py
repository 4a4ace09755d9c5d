"""The paper's analyses, one module each. A module that is put here is found by itself (`radmoe_studies.base.load`)."""
