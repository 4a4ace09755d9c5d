"""`python -m radmoe`."""

from radmoe.cli import main

main()
