#!/usr/bin/env bash
# Takes the project to a GPU host that has neither Node.js nor a network, and runs there what only GPUs show.
#
# Here, where CUDA's compiler is:
#   scripts/gpu-host.sh pack DIR [REV]   builds this tree, and REV to compare it with; writes them to DIR, which git ignores, in parts
#
# There, in a copy of the tree that has the parts that the command needs in DIR:
#   scripts/gpu-host.sh suites DIR OUT      native tests, and the suites of the API           node modules addon tests
#   scripts/gpu-host.sh alone DIR OUT       those that nothing may run beside                 node modules addon tests
#   scripts/gpu-host.sh sanitizers DIR OUT  the small native tests under compute-sanitizer    tests
#   scripts/gpu-host.sh joins DIR OUT       joins from host memory, out of core, skewed       programs
#   scripts/gpu-host.sh rows DIR OUT        programs of REV and of this tree, in turns        programs old-programs
#   scripts/gpu-host.sh calls DIR OUT       joins and sorts through the API beside DuckDB     node modules addon
#   scripts/gpu-host.sh turns DIR OUT       the same of REV and of this tree, in turns        node modules addon old-calls
#   scripts/gpu-host.sh small DIR OUT       its processor: few rows, many calls at once       node modules addon
#   scripts/gpu-host.sh batches DIR OUT     its disk: batches larger than memory, and DuckDB  node modules addon
#   scripts/gpu-host.sh files DIR OUT       its disk: files larger than memory, and DuckDB    node modules addon
#
# Each prints what a process counted, and more of one that failed, and writes OUT/COMMAND.tar.gz: logs, and the reports that
# bench/report/compare.mjs reads. It exits with 1 where one failed.
#
# WARPJOIN_GPU_HOME: where parts are unpacked there (/tmp/warpjoin-gpu). WARPJOIN_EXPECT_GPUS as for scripts/gpu-native-tests.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=(warpjoin_{gpu_primitives,gpu_sort,gpu_gather,gpu_join,gpu_join_scaling,transfer}_bench)
usage() {
  sed -n '2,/^set/p' "$0" | grep '^#' >&2
  exit 2
}

# ---- here

# packed NAME FOLDER PATH...: DIR/NAME.tar.xz of paths of the folder.
packed() { tar c -C "$2" --exclude='*.map' --exclude='*.d.ts' --exclude=.cache "${@:3}" | xz -6 -T0 >"$dir/$1.tar.xz"; }

# built ROOT TARGET...: the addon, the JavaScript and these programs.
built() { (cd "$1" && node scripts/setup.mjs && bash scripts/gpu-build.sh "${@:2}") >&2; }

pack() {
  local staged other=${TMPDIR:-/tmp}/warpjoin-old
  staged=$(mktemp -d)
  mkdir -p "$dir"
  built . warpjoin_tests "${programs[@]}"
  strip -o "$staged/node" "$(node -p process.execPath)"
  packed node "$staged" node
  strip -o "$staged/warpjoin.node" build/Release/warpjoin.node
  echo "$(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo ' with changes')" >"$staged/commit"
  packed addon "$staged" warpjoin.node commit
  # What lint, other engines and old versions need stays here.
  local left_out=(typescript @biomejs '@types' 'nodejs-polars*' vega-datasets apache-arrow-15 node-gyp @swc)
  packed modules . "${left_out[@]/#/--exclude=node_modules/}" dist node_modules
  packed tests build/gpu warpjoin_tests
  packed programs build/gpu "${programs[@]}"
  if [ -n "${1:-}" ]; then
    [ -d "$other" ] || git worktree add --detach "$other" "$1"
    git -C "$other" checkout --quiet --detach "$1"
    ln -sfn "$PWD/node_modules" "$other/node_modules"
    built "$other" "${programs[@]}"
    packed old-programs "$other/build/gpu" "${programs[@]}"
    packed old-calls "$other" package.json dist bench/js bench/workloads build/Release/warpjoin.node
  fi
  rm -r "$staged"
  du -ch "$dir"/*.tar.xz
}

# ---- there

# unpacked PART FOLDER: once for each content that the part had.
unpacked() {
  local part=$dir/$1.tar.xz stamp=$2/.$1.stamp
  [ -f "$part" ] || { echo "$part is missing" >&2; exit 2; }
  mkdir -p "$2"
  [ "$(cat "$stamp" 2>/dev/null)" = "$(cksum <"$part")" ] && return
  python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1], "r:xz").extractall(sys.argv[2], filter="fully_trusted")' "$part" "$2"
  cksum <"$part" >"$stamp"
}

# In a copy of the tree with these parts from now on.
enter() {
  local home=${WARPJOIN_GPU_HOME:-/tmp/warpjoin-gpu} part unpacking=()
  local tree=$home/tree
  mkdir -p "$tree"
  tar c --exclude="./${dir#./}" --exclude=./.git . | tar x -C "$tree"
  for part in "$@"; do
    case $part in
      node) unpacked node "$home/bin" & ;;
      modules) unpacked modules "$tree" & ;;
      addon) unpacked addon "$tree/build/Release" & ;;
      tests | programs) unpacked "$part" "$tree/build/gpu" & ;;
      old-programs) unpacked old-programs "$home/old/build/gpu" & ;;
      old-calls) unpacked old-calls "$home/old" & ;;
    esac
    unpacking+=($!)
  done
  for part in "${unpacking[@]}"; do wait "$part"; done
  old=$home/old
  [ ! -d "$old" ] || ln -sfn "$tree/node_modules" "$old/node_modules"
  logs=$home/$command
  rm -rf "$logs"
  mkdir -p "$logs"
  cd "$tree"
  [ ! -f build/Release/commit ] || export WARPJOIN_COMMIT="$(<build/Release/commit)"
  PATH=$home/bin:$PWD/node_modules/.bin:$PATH
}

declare -A running=()
failed=0
# beside NAME COMMAND...: begins a process.
beside() {
  (SECONDS=0 && rc=0 && "${@:2}" >"$logs/$1.log" 2>&1 || rc=$? && echo "rc $rc after $SECONDS s" >>"$logs/$1.log" && exit $rc) &
  running[$1]=$!
}
# Waits for what was begun, and writes what there is: the command may be ended at any time.
finish() {
  local name
  for name in "${!running[@]}"; do
    if wait "${running[$name]}"; then
      printf '%-20s %s' "$name" "$(tail -n 1 "$logs/$name.log")"
      # How often something was said: shards say the same.
      (grep -E 'PASSED|SKIPPED|Tests  |SUMMARY' "$logs/$name.log" || true) | sort | uniq -c | sort -rn | head -n 9 | sed 's/^ */; /' | tr -d '\n'
      echo
    else
      failed=1
      printf '\n== %s\n%s\n\n' "$name" "$(tail -n 60 "$logs/$name.log")"
    fi
  done
  running=()
  tar czf "$out/$command.tar.gz" -C "$logs" .
}
# run NAME COMMAND...: a process that nothing runs beside.
run() {
  beside "$@"
  finish
}

vitest() { command vitest run --config vitest.gpu.config.ts "$@"; }
program() { "$1/build/gpu/warpjoin_$2_bench" "${@:3}"; }
# A report of a benchmark in JavaScript.
call() { (cd "$1" && node "bench/js/$2.mjs" "${@:3}"); }

suites() {
  enter node modules addon tests
  export WARPJOIN_RUNS=0.15
  beside native env WARPJOIN_TEST_SHARDS=8 bash scripts/gpu-native-tests.sh together
  beside property vitest test/property
  beside join vitest integration/join.test.ts
  beside batches vitest {sort,join,validate}-batches.test.ts
  beside spilled vitest spilled-join.test.ts mapped.test.ts
  beside tables vitest integration/{load,sort,engine,bad-input}.test.ts
  finish
}

alone() {
  enter node modules addon tests
  run native-alone bash scripts/gpu-native-tests.sh alone
  run gpu vitest test/gpu
}

sanitizers() {
  local tool
  enter tests
  beside racecheck env WARPJOIN_TEST_SHARDS=8 bash scripts/gpu-native-tests.sh sanitizers racecheck
  for tool in memcheck initcheck synccheck; do
    beside "$tool" env WARPJOIN_TEST_SHARDS=2 bash scripts/gpu-native-tests.sh sanitizers "$tool"
  done
  finish
}

# joins_from NAME OPTION...: joins of bench/native/gpu_join_scaling_bench.cc that are asked for, and no others.
joins_from() {
  run "$1" program . gpu_join_scaling --resident 0 --b 0 --a 0 --home 0 --ooc 0 --json "$logs/$1.json" "${@:2}"
  [ $failed -eq 1 ] || grep -v "^rc " "$logs/$1.log"
}

joins() {
  local limit
  enter programs
  joins_from home --home 250000000 --runs 5
  for limit in 8 4 2; do joins_from "ooc-$limit" --ooc 250000000 --limit ${limit}000000000 --runs 5; done
  joins_from ooc-a --ooc-a 2500000000 --limit 2000000000
  joins_from large --ooc 1750000000 --limit 39300000000
  joins_from skew --skew 250000000 --limit 4000000000
  joins_from spill --spill 250000000
}

# turn NUMBER NAME COMMAND...: a benchmark of either build, whose root comes behind the command; the order changes from turn to turn.
turn() {
  local builds=(old new) build
  [ $(($1 % 2)) -eq 0 ] || builds=(new old)
  for build in "${builds[@]}"; do
    local root=$PWD
    [ $build = new ] || root=$old
    run "$2-$build-$1" "$3" "$root" "${@:4}" --json "$logs/$2-$build-$1.json"
  done
}

rows() {
  enter programs old-programs
  turn 1 primitives program gpu_primitives
  turn 1 join program gpu_join
  turn 1 sort program gpu_sort
  turn 1 gather program gpu_gather
  turn 1 transfer program transfer
  turn 1 scaling program gpu_join_scaling --b 250000000 --a 250000000 --home 0 --ooc 0
}

calls() {
  enter node modules addon
  run join call . gpu-join --rows 200000000 --runs 3 --plain --json "$logs/join.json"
  run memory call . gpu-memory --runs 3 --json "$logs/memory.json"
  tables {join,memory}.log
}

turns() {
  local number
  enter node modules addon old-calls
  for number in 1 2; do
    turn $number sort call gpu-sort --rows 20000000
    turn $number join call gpu-join --rows 20000000
  done
}

# tables NAME...: what they printed.
tables() { grep -hv '^rc ' "${@/#/$logs/}"; }

small() {
  enter node modules addon
  run through-batches call . through-batches --runs 5 --json "$logs/through-batches.json"
  run at-once call . at-once --json "$logs/at-once.json"
  run at-once-100000 call . at-once --rows 100000 --json "$logs/at-once-100000.json"
  run calls-1000 call . small-calls --peers duckdb
  run calls-100000 call . small-calls --rows 100000 --peers duckdb
  tables {through-batches,at-once,at-once-100000,calls-1000,calls-100000}.log
}

batches() {
  enter node modules addon
  run batches call . batches --runs 1 --json "$logs/batches.json"
  tables batches.log
}

files() {
  enter node modules addon
  run files call . large-files --rows 700000000 --limit 2GiB --runs 1 --commands sort --json "$logs/files.json"
  run files-join call . large-files --runs 1 --commands join,join-both --json "$logs/files-join.json"
  tables {files,files-join}.log
}

command=${1:-} dir=${2:-}
[ -n "$dir" ] || usage
case $command in
  pack) pack "${3:-}" ;;
  suites | alone | sanitizers | joins | rows | calls | turns | small | batches | files)
    out=$(realpath "${3:?the folder for what it writes}")
    dir=$(realpath --relative-to=. "$dir")
    nvidia-smi -L
    "$command"
    exit $failed
    ;;
  *) usage ;;
esac
