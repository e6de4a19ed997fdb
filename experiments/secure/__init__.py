"""SelectFormer: what a secure choice costs, beside the paper's figures."""
