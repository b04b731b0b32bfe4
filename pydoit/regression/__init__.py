"""Whether one artifact is slower than another: interleaved timing, an honest verdict, a history of experiments."""
