"""Convolutions and matrix products computed by oneDNN: which calls, how they are described, and the C++ around them."""
