"""Results that every room returns, and their forms."""
