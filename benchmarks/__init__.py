"""Speed against the tools people already use; one module per part of radmoe."""
