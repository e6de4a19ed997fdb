"""A study of KNN-Shapley beside values that train models again."""
