"""SelectFormer's claims on real data: scores, proxies, accuracy after a purchase."""
