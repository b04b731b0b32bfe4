"""Text in and out of a language model: tokenizer, streaming, sampling and the book-keeping of its KV cache."""
