"""Language models: what a checkpoint's config means, its parameters, and the decoder that is compiled from them."""
