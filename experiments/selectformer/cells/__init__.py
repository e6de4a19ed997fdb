"""The paper's own cells: any prepared data set, and any target in a folder."""
