"""Where an artifact comes from: an in-toto statement, a bill of materials, a signature, and a check of them offline."""
