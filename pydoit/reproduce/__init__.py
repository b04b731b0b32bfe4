"""`doit build --check-reproducible`: the same recipe built twice in different surroundings, and what differs."""
