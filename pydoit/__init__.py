"""doit-modelbuild: a doit plugin that builds compiled models from checked-in recipes."""

__version__ = "0.1.0"
