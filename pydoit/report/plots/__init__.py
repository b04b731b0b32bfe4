"""The plots of report.html: one a file, each a function from numbers to SVG, or to None where there is nothing to draw."""
