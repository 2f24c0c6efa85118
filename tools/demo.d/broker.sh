# shellcheck shell=bash disable=SC2034,SC2154 # variables of tools/demo, which has set -euo pipefail
# SPDX-License-Identifier: MIT
# Builds the demo's programs, starts and stops its own broker and its other processes. Needs $build and
# $is_built_here.

readonly brokerd=$build/broker/brokerd brokerdemo=$build/tools/brokerdemo/brokerdemo
readonly libraries=$build/libclient

# ---- Processes ----

scratch=$(mktemp -d)
readonly scratch socket=$scratch/brokerd.sock policy=$scratch/brokerd.conf
broker=
broker_env=() # of the broker's process, as NAME=VALUE
clients=()
is_drawing=

# stop PID: ask the process to end, and kill it if it has not ended within 5 s.
stop() {
	local i
	kill "$1" 2>/dev/null || return 0
	for ((i = 0; i < 50; i++)); do
		kill -0 "$1" 2>/dev/null || break
		sleep 0.1
	done
	kill -KILL "$1" 2>/dev/null || true
	wait "$1" 2>/dev/null || true
}

# shellcheck disable=SC2317 # reached through the traps
clean_up() {
	local status=$? pid
	trap - EXIT INT TERM
	[ -z "$is_drawing" ] || printf '\n'
	# Not "${clients[@]}": a signal may arrive before the latest process is in that list.
	for pid in $(jobs -pr); do
		stop "$pid"
	done
	rm -rf "$scratch"
	exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# fail TEXT: exit with an error and the broker's log.
fail() {
	progress_end
	echo "tools/demo: $*" >&2
	[ ! -s "$scratch/broker.log" ] || sed 's/^/  /' "$scratch/broker.log" >&2
	exit 1
}

# need PROGRAM...: build the programs and show the progress, unless they were built elsewhere.
need() {
	local line text pid said=$SECONDS begun=$SECONDS
	[ -n "$is_built_here" ] || return 0
	mkfifo "$scratch/steps"
	NINJA_STATUS='[%f/%t] ' ninja -C "$build" "$@" >"$scratch/steps" 2>&1 &
	pid=$!
	while IFS= read -r line; do
		if ! [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
			echo "$line" >>"$scratch/build.log"
			continue
		fi
		text="building: step ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}, $((SECONDS - begun)) s"
		if [ -t 1 ]; then
			printf '\r%s\033[K' "$text"
			is_drawing=1
		elif [ $((SECONDS - said)) -ge 5 ]; then
			echo "$text"
			said=$SECONDS
		fi
	done <"$scratch/steps"
	rm "$scratch/steps"
	progress_end
	wait "$pid" || {
		cat "$scratch/build.log" >&2
		fail "the build failed"
	}
}

# start_broker MODE [OPTION]...: start brokerd and wait until it listens.
start_broker() {
	local i mode=$1
	shift
	rm -f "$socket"
	# On a busy machine a software device may take seconds for a task; the timeout keeps it in use.
	env "${broker_env[@]}" "$brokerd" --gpu="$mode" --gpu-timeout=120 --socket="$socket" --cache="$scratch" \
		--config="$policy" "$@" >"$scratch/broker.log" 2>&1 &
	broker=$!
	for ((i = 0; i < 300; i++)); do
		[ ! -S "$socket" ] || return 0
		kill -0 "$broker" 2>/dev/null || break
		sleep 0.1
	done
	fail "brokerd does not start"
}

# Print the kind of the broker's best device: gpu, software-gpu or cpu.
best_device() {
	local kind found=cpu
	while read -r _ kind _; do
		[ "$kind" = cpu ] || [ "$found" = gpu ] || found=$kind
	done <"$scratch/devices"
	echo "$found"
}

list_devices() {
	"$brokerdemo" --socket "$socket" --devices >"$scratch/devices" ||
		fail "the broker does not answer"
}

# Succeed if the GPU is software Vulkan, which shares the processor cores with the CPU device.
is_stand_in() { [ "$(best_device)" = software-gpu ]; }

# Say on a machine without a GPU what its figures are worth.
explain_stand_in() {
	! is_stand_in || cat <<-EOF
		This machine has no GPU that brokerd can use. Software Vulkan, on the same processor cores, stands in for
		a card: placement rules, budgets, copies and results are as with a card, but its times say nothing about
		a card.

	EOF
}

# Clear the line of progress, if one is being drawn.
progress_end() {
	[ -z "$is_drawing" ] || printf '\r\033[K'
	is_drawing=
}

# Start a broker with the best available device, preferring a real GPU to a software one. Sets $gpu_mode to the
# value of --gpu.
start_best_broker() {
	for gpu_mode in auto software; do
		start_broker "$gpu_mode"
		list_devices
		if [ "$(best_device)" != cpu ] || [ "$gpu_mode" = software ]; then
			break
		fi
		stop "$broker"
	done
}
