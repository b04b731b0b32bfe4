"""Schedules of TIR functions for CPUs, with parameters that tuning records may set."""
