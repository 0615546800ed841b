"""The command line: `belvedere …`.

One module per command (or small group of them), loaded when it is called, so that `belvedere --help` and shell
completion do not wait for the engine. `main` holds the group, `context` what all commands share, `output` tables and
JSON, `exits` the exit codes. Nothing imports this package.
"""
