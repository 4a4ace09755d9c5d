"""Defaults that the command line shows, apart from the modules that use them, which take long to import."""

METHOD = "patch-overlap"  # docs/agents.md: what it rests on
TEST_SECONDS = 300
