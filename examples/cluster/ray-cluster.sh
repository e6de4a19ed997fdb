#!/bin/bash
# Starts a cluster of Ray in the job of Slurm that runs it, one node for each host, and
# values on all of them:  sbatch --nodes=4 examples/cluster/ray-cluster.sh
#SBATCH --job-name=jaxsel-ray
#SBATCH --ntasks-per-node=1
#SBATCH --time=01:00:00
set -e
hosts=($(scontrol show hostnames "${SLURM_JOB_NODELIST:?}"))
head=${hosts[0]}:6379
srun --nodes=1 --ntasks=1 -w "${hosts[0]}" ray start --head --port=6379 --block &
sleep 20
srun --nodes=$((${#hosts[@]} - 1)) --exclude "${hosts[0]}" ray start --address="$head" --block &
sleep 20
python examples/cluster/values.py ray --address "$head" --folder "${FOLDER:-run}"
