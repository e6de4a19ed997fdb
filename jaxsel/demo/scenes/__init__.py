"""What the demo and the experiments act out: trainers, owners, clients, texts."""
