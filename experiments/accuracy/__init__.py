"""Accuracy after training on what a selector buys: SelectFormer's headline."""
