"""The sections of report.html: one a file, each a function from the report to a Section."""
