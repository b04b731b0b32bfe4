"""What a compiled model costs and where its time goes: costs from the IR, ceilings of the machine, traces, the roofline."""

FILE = "costs.json"
"""What the compile stage writes for the profile: see `pydoit.profiling.costs`."""
