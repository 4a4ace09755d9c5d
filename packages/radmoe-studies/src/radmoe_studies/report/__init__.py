"""Studies as pages: tables, figures, the ledger of claims, and the committed results."""
