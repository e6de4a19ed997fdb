#!/bin/bash
# Starts a cluster of Ray in the job of Slurm that runs it, one node for each host, and
# values on all of them:  sbatch --nodes=4 examples/cluster/ray-cluster.sh
#SBATCH --job-name=jaxsel-ray
#SBATCH --ntasks-per-node=1
#SBATCH --time=01:00:00
set -e
hosts=($(scontrol show hostnames "${SLURM_JOB_NODELIST:?}"))
head=${hosts[0]}:6379
others=$((${#hosts[@]} - 1))
# Newer versions of Ray let in only who has the cluster's token: srun hands it on.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
cpus=--num-cpus=${SLURM_CPUS_ON_NODE:?}

nodes() { ray status --address "$head" 2>/dev/null | grep -c "^ 1 node_" || true; }
wait_for() { # so many nodes, for ten minutes at most
  for _ in $(seq 300); do
    [ "$(nodes)" -ge "$1" ] && return
    sleep 2
  done
  echo "Ray has $(nodes) of $1 nodes" >&2
  exit 1
}

srun --nodes=1 --ntasks=1 -w "${hosts[0]}" ray start --head --port=6379 "$cpus" --block &
wait_for 1
if ((others)); then
  srun --nodes="$others" --ntasks="$others" --exclude "${hosts[0]}" \
    ray start --address="$head" "$cpus" --block &
fi
wait_for "${#hosts[@]}"
python examples/cluster/values.py ray --address "$head" --folder "${FOLDER:-run}"
