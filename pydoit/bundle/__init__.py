"""Bundles: a build that one machine began and another one finishes, as one signed archive (`doit pack`, `doit unpack`)."""
