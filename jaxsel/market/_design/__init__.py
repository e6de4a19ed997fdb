"""Experimental design: samples to buy for predictions."""
