"""Experiments on a recipe: variants of it are built through the same store as the recipe, and measured side by side."""
