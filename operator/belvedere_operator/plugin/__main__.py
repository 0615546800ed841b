"""`python -m belvedere_operator.plugin`."""

from belvedere_operator.plugin.main import main

main()
