"""Values across owners from sums of counts with noise."""
