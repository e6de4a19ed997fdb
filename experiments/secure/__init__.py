"""SelectFormer: the cost of a secure choice, beside the paper's figures."""
