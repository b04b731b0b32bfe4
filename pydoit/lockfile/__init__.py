"""modelbuild.lock: what each recipe is built from and what it gives, checked in beside the recipes."""
