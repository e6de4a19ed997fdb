"""SelectFormer: proxies that choose texts for a secret model."""
