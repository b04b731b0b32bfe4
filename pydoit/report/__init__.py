"""Reports of the last build: one JSON document, and what is drawn from it: a page, a summary, a trace, tables."""
