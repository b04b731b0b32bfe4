"""The commands that this plugin adds to doit, one a file."""
