"""Hand-scheduled CPU kernels of language models as TIR functions: linear layers, norms, rotary embedding, attention."""
