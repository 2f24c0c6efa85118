# shellcheck shell=bash disable=SC2034,SC2154 # variables of tools/demo, which has set -euo pipefail
# SPDX-License-Identifier: MIT
# Demo of placement, in seven scenes: see tools/demo. Needs $build and the definitions of broker.sh.

readonly placement=$build/tools/brokerdemo/placement brokerctl=$build/tools/brokerctl/brokerctl
readonly brokersim=$build/tools/brokersim/brokersim
readonly scenario=tools/brokersim/scenarios/decisions.scenario

# scene N TITLE: print the heading of a scene.
scene() { printf '\n%s. %s\n\n' "$1" "$2"; }

# say TEXT: print the broker's last log line that contains TEXT.
say() { sed -n 's/^brokerd: /  /p' "$scratch/broker.log" | grep -e "$1" | tail -n 1; }

# play SCENE [OPTION]...: run a scene's client. A failure is remembered, and the demo continues.
play() {
	"$placement" --socket "$socket" --brokerctl "$brokerctl" "$@" || {
		kill -0 "$broker" 2>/dev/null || fail "the broker is gone"
		echo "tools/demo: scene \"$1\" is not as expected" >&2
		status=1
	}
}

# Task of the decision table, by plan of the scenario.
declare -A of_plan=([matmul-100kb]="100 KB MatMul" [matmul-2mb]="2 MB MatMul"
	[convolution-100mb]="100 MB convolution" [elementwise-10mb]="10 MB elementwise"
	[matmul-500mb]="500 MB MatMul")

# Write the placement of the same tasks on a simulated RX 580 with eight cores, as a column for comparison.
simulate() {
	local figure reached plan where percent
	printf 'head\t%s\ntask\t%s\n' "simulated" "RX 580"
	"$brokersim" --check --policies=ours "$scenario" >"$scratch/simulated" || [ $? -eq 1 ] ||
		fail "brokersim failed"
	while read -r _ _ _ _ figure _ _ reached _; do
		[[ $figure =~ ^placed\.(.*)\.(cpu|gpu|split)$ ]] || continue
		plan=${BASH_REMATCH[1]} where=${BASH_REMATCH[2]}
		percent=$(LC_ALL=C printf '%.0f' "${reached}e2")
		case $where in
		cpu | gpu) where=${where^^} ;;
		esac
		[ "$percent" -ge 90 ] || where+=" ($percent% of tasks)"
		printf '%s\t%s\n' "${of_plan[$plan]:-$plan}" "$where"
	done <"$scratch/simulated"
}

# start_twice: start the broker, which measures its devices, and then again, when it knows them.
start_twice() {
	local i
	: >"$policy" # ignore this machine's policy
	start_best_broker
	# On a busy machine the broker may not have the time to measure at the start, and measures while idle.
	for ((i = 0; i < 5; i++)); do
		stop "$broker"
		rm -f "$scratch"/*.profile
		start_broker "$gpu_mode"
		first=$(say profiles)
		[[ $first = *"not measured"* ]] || break
	done
	stop "$broker"
	start_broker "$gpu_mode"
	second=$(say profiles)
}

# Start a service that stays connected while brokerctl reads the statistics.
start_service() {
	local said
	mkfifo "$scratch/said"
	"$placement" --socket "$socket" service >"$scratch/said" &
	clients+=($!)
	read -r said <"$scratch/said" || true
	[ "$said" = ready ] || fail "the service failed"
}

show_statistics() {
	local before after
	start_service
	echo "  brokerctl stats"
	"$brokerctl" --socket="$socket" stats >"$scratch/stats" || fail "brokerctl stats failed"
	sed -n '1,40s/^/    /p' "$scratch/stats"
	printf '\n  brokerctl decisions --last=3 --json\n'
	"$brokerctl" --socket="$socket" decisions --last=3 --json >"$scratch/decisions" ||
		fail "brokerctl decisions failed"
	sed 's/^/    /' "$scratch/decisions"
	before=$(count_tasks)
	printf '\n  brokerctl reset-stats --all\n'
	"$brokerctl" --socket="$socket" reset-stats --all || fail "brokerctl reset-stats failed"
	after=$(count_tasks)
	echo "    tasks counted before: $before, after: $after"
	if [ "$before" = 0 ] || [ "$after" != 0 ] || [ "$(wc -l <"$scratch/decisions")" != 3 ]; then
		echo "tools/demo: the counts are not as expected" >&2
		status=1
	fi
	stop "${clients[0]}"
	clients=()
}

# Print the number of tasks that the broker has counted on all devices, from its JSON lines.
count_tasks() {
	local n=0 line
	while read -r line; do
		[[ $line =~ ^\{\"type\":\"device\" && $line =~ \"tasks\":([0-9]+) ]] || continue
		n=$((n + BASH_REMATCH[1]))
	done < <("$brokerctl" --socket="$socket" stats --json)
	echo "$n"
}

start_twice
explain_stand_in
cat "$scratch/broker.log"

scene 1 "One task described"
play task

scene 2 "The devices"
printf '  first start:  %s\n  second start: %s\n\n' "${first#  }" "${second#  }"
play profiles --profiles "$scratch"

scene 3 "The decision table"
simulate >"$scratch/beside"
play table --beside "$scratch/beside"

scene 4 "A mixed batch, balanced"
play batch

scene 5 "One task split"
play split

scene 6 "Strategies, and force-CPU"
play strategies

scene 7 "The statistics, and their reset"
show_statistics

stop "$broker"
broker=
if [ "$status" -eq 0 ]; then
	printf '\nEvery result of every scene was right.\n'
fi
