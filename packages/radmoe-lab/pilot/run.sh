#!/usr/bin/env bash
# The pilot of the long lab on one H200, a bare machine that may be given back when idle (docs/lab.md, "The long lab").
#   run.sh pack DIR  here: puts into DIR what has to travel, 14 MB
#   run.sh start     unpacks, then trains and samples in the background; returns at once (sleep some 550 s behind it, or an idle machine is given back)
#   run.sh status    what is running, what is finished, the last lines of every log
#   run.sh fetch     copies to $OUT what is finished and was not fetched before (5 files, 60 MB a call)
#   run.sh again     as fetch, and what was fetched before comes again
#   run.sh join DIR  here: makes files again of what was fetched into DIR
# TINY=1 does all of it on a CPU in some minutes, with a radmoe that has numba.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${WORK:-/root/long-out}
python=${PYTHON:-python3}
seconds=${SECONDS_TO_TRAIN:-330}
last=${LAST_START:-700}          # no sampling starts later than so many seconds after the beginning
deadline=${DEADLINE:-800}        # what still samples then is ended
tiny=${TINY:-}
seed=3201                        # development problems: never test problems

environment() {
  export PYTHONPATH=$work/lib:$work/src:$work/packages/radmoe-lab/src PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=2 HF_HUB_OFFLINE=1
  export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
  cd "$work"
}

elapsed() { echo $(($(date +%s) - $(cat "$work/began"))); }

log() { echo "$(elapsed) s: $*" >> "$work/logs/stages"; }

train() {  # model
  local m=$1 out=$work/weights/$1
  log "train $m"
  if [ -s "$out/model.safetensors" ]; then
    log "weights of $m are there"
  elif [ -n "$tiny" ]; then
    $python -m radmoe_lab.train "$m" --tiny --steps 3 --tokens 2048 --out "$out" > "$work/logs/train-$m" 2>&1
  else
    $python -m radmoe_lab.train "$m" --seconds "$seconds" --tokens 49152 --workers 6 --out "$out" > "$work/logs/train-$m" 2>&1
  fi
  if [ ! -s "$out/model.safetensors" ]; then
    log "train $m failed, eager"
    local left=$((430 - $(elapsed)))
    [ "$left" -gt 60 ] || left=60
    $python -m radmoe_lab.train "$m" --seconds "$left" --eager --tokens 16384 --workers 6 --out "$out" > "$work/logs/train-$m-eager" 2>&1
  fi
  [ -s "$out/model.safetensors" ] || { log "train $m failed"; return 1; }
  log "trained $m"
  cp "$out/training.json" "$work/logs/training-$m.json" 2>/dev/null
  (cd "$out" && split -b 15M -d model.safetensors "$work/parts/z-weights-$m.") && touch "$work/parts/ready-z-weights-$m"
}

sample() {  # model style task setting temperature top-p limit
  local m=$1 style=$2 task=$3 setting=$4 temperature=$5 top=$6 limit=$7 name=$1-$4-$3 left
  [ "$(elapsed)" -lt "$last" ] || { log "no time for $name"; return 0; }
  left=$((deadline - $(elapsed)))
  log "sample $name"
  local size=(-n 64 --limit "$limit" --device cuda --batch-size 2048)
  [ -z "$tiny" ] || size=(-n 4 --limit 2 --device cpu --batch-size 8 --max-tokens 40)
  timeout "$left" $python -m radmoe_lab.sample "$m" --style "$style" --weights "$work/weights/$m" --task "long-$task" --seed $seed \
    --temperature "$temperature" --top-p "$top" "${size[@]}" --out "$work/sampled/$name" \
    --matrices "delimiter@16" "delimiter@marker" "pre-delim@16" "delimiter@span" all "delimiter@16 binary" "delimiter@marker binary" "all binary" \
    "trajectory:so*@16 budget=256" "trajectory:so*@16 budget=512" "trajectory:so*@16 budget=1024" "boundary@16" \
    > "$work/logs/sample-$name" 2>&1 || { log "sample $name failed ($?)"; return 0; }
  log "sampled $name"
  $python -c "
import sys, numpy as np
with np.load(sys.argv[1]) as a: a = {n: a[n] for n in a.files}
a |= {n: a[n][:500] for n in ('expert_ids', 'weights')}  # they prove a replay, and 500 tokens do
np.savez_compressed(sys.argv[1], **a)" "$work/sampled/$name/$m-$style.npz" >> "$work/logs/sample-$name" 2>&1
  for kind in npz matrices.npz; do
    cp "$work/sampled/$name/$m-$style.$kind" "$work/parts/.whole" && split -b 15M -d "$work/parts/.whole" "$work/parts/$setting-$task-$m.$kind." || return 0
    rm "$work/parts/.whole"
    touch "$work/parts/ready-$setting-$task-$m.$kind"
  done
}

lane() {  # model style tasks...: first the paper's sampling, then the hotter one
  local m=$1 style=$2; shift 2
  local -A paper=([code]=160 [math]=120 [choice]=100) hot=([code]=80 [math]=60 [choice]=50)
  for task; do sample "$m" "$style" "$task" paper 0.7 0.9 "${paper[$task]}"; done
  for task; do sample "$m" "$style" "$task" t1 1.0 1.0 "${hot[$task]}"; done
}

model() {  # model style
  train "$1" || return
  (lane "$1" "$2" code) &
  (sleep 2; lane "$1" "$2" math choice) &
  wait
}

case ${1:-} in
  pack)
    mkdir -p "${2:?give a directory}"
    cp "$0" "$2/run.sh"
    tar czf "$2/sources.tar.gz" --exclude=radmoe_lab/{weights,rollouts,trajectories} --exclude={__pycache__,*.egg-info} \
      -C "$here/../../.." src packages/radmoe-lab/src
    $python -m pip download -q --no-deps -d "$2" transformers==5.23.0
    du -sh "$2" ;;
  start)
    [ ! -e "$work/began" ] || { echo "already started"; exit 0; }
    mkdir -p "$work"/{lib,logs,parts,weights,sampled}
    date +%s > "$work/began"
    $python -m zipfile -e "$here"/transformers-*.whl "$work/lib"
    tar xzf "$here/sources.tar.gz" -C "$work"
    mkdir -p "$work/lib/radmoe_lab-0.1.0.dist-info"  # so that radmoe finds its plugin
    printf 'Metadata-Version: 2.1\nName: radmoe-lab\nVersion: 0.1.0\n' > "$work/lib/radmoe_lab-0.1.0.dist-info/METADATA"
    printf '[radmoe]\nlab = radmoe_lab.plugin:PLUGIN\n' > "$work/lib/radmoe_lab-0.1.0.dist-info/entry_points.txt"
    if ! $python -c "from numba import njit, types; from numba.extending import intrinsic; from llvmlite import ir" 2> /dev/null; then
      # Nothing that a GPU runs is compiled by numba, but modules beside it import it.
      mkdir -p "$work"/lib/{numba,llvmlite}
      printf 'from unittest.mock import MagicMock\n\ntypes = MagicMock()\n\n\ndef njit(*names, **options):\n    if options.get("cache"):\n        raise RuntimeError("no locator")\n    return lambda function: function\n' > "$work/lib/numba/__init__.py"
      printf 'def intrinsic(function):\n    return function\n' > "$work/lib/numba/extending.py"
      printf 'from unittest.mock import MagicMock\n\nir = MagicMock()\n' > "$work/lib/llvmlite/__init__.py"
    fi
    check="import torch, transformers, radmoe_lab.train, radmoe_lab.sample, radmoe_lab.inference.engine; from radmoe.problems import load_questions; load_questions('long-math', seed=3201, limit=1); print(torch.__version__, transformers.__version__, torch.cuda.is_available())"
    if ! (environment; $python -c "$check"); then  # versions that it asks for and does not need
      echo "def dep_version_check(pkg, hint=None): pass" > "$work/lib/transformers/dependency_versions_check.py"
      (environment; $python -c "$check") || { echo "imports fail"; rm "$work/began"; exit 1; }
    fi
    cp "$here/run.sh" "$work/run.sh"
    setsid nohup bash "$work/run.sh" all > "$work/logs/all" 2>&1 < /dev/null &
    echo started ;;
  all)
    environment
    [ -n "$tiny" ] || (while sleep 15; do nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader; done > "$work/logs/gpu" 2>&1) & watch=$!
    (model lab-long-qwen thinking) & one=$!
    (model lab-long-oss medium) & two=$!
    wait $one $two
    kill $watch 2>/dev/null
    log "all done"
    touch "$work/done" ;;
  status)
    cat "$work/logs/stages"; [ -e "$work/done" ] && echo DONE || echo "running, $(elapsed) s"
    for f in "$work"/logs/{train,sample}-*; do echo "== $(basename "$f")"; tail -n 2 "$f" | cut -c1-300; done
    tail -n 1 "$work/logs/gpu" 2>/dev/null; ls -l "$work/parts" | awk '{print $5, $9}' ;;
  fetch|again)
    [ "$1" = fetch ] || rm -f "$work/sent"
    touch "$work/sent"
    tar czf "$OUT/logs.tar.gz" -C "$work" logs
    bytes=0 chosen=() more=
    for ready in "$work"/parts/ready-*; do
      [ -e "$ready" ] || continue
      for part in "$work/parts/$(basename "$ready" | sed s/^ready-//)".[0-9][0-9]; do
        name=$(basename "$part") size=$(stat -c %s "$part")
        grep -qxF "$name" "$work/sent" && continue
        [ $((bytes + size)) -lt 60000000 ] || { more=1; continue; }
        chosen+=("$name") bytes=$((bytes + size))
      done
    done
    if [ ${#chosen[@]} -gt 0 ]; then
      bundle=bundle-$(date +%s).tar
      tar cf - -C "$work/parts" "${chosen[@]}" | split -b 15M -d - "$OUT/$bundle." && printf '%s\n' "${chosen[@]}" >> "$work/sent"
    fi
    cat "$work/logs/stages"; ls -l "$OUT" | awk '{print $5, $9}'
    [ -z "${more:-}" ] || echo "MORE TO FETCH: call fetch again"
    [ -e "$work/done" ] && echo DONE || echo "running, $(elapsed) s" ;;
  join)
    cd "${2:?give a directory}" || exit 2
    for first in bundle-*.tar.00; do cat "${first%00}"[0-9][0-9] | tar x || exit 1; done
    for first in *.npz.00 z-weights-*.00; do
      [ ! -e "$first" ] || { cat "${first%00}"[0-9][0-9] > "${first%.00}" && rm "${first%00}"[0-9][0-9]; }
    done
    ls ;;
  *) sed -n 2,10p "$0"; exit 2 ;;
esac
