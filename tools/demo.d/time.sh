# shellcheck shell=bash disable=SC2034,SC2154 # variables of tools/demo, which has set -euo pipefail
# SPDX-License-Identifier: MIT
# Demo of programs that share a card's time: see tools/demo. Needs $seconds and the definitions of broker.sh.

readonly brokerctl=$build/tools/brokerctl/brokerctl sim=$build/tests/amdgpu-sim/amdgpu-sim
readonly submit_client=$build/tests/support/submit-client model_client=$build/tests/integration/model-client
readonly manifest=$build/libclient/layer/built/ringbroker_lease.json

# The card takes 10 us for each workgroup. A submission of the prefill takes 20 ms, an urgent job 1 ms.
readonly group_us=10 prefill_us=20000 urgent_groups=100 period_us=20000

# ---- Programs that answer lines ----

declare -A to=() from=() pids=() # by program: descriptors of its input and output, and its process
declare -A report=()             # by program: its last report, see tests/support/submit-client.c

now_us() { echo "${EPOCHREALTIME//[!0-9]/}"; }

# begin NAME COMMAND...: start a program.
begin() {
	local name=$1 in out fd
	shift
	mkfifo "$scratch/$name.in" "$scratch/$name.out"
	exec {in}<>"$scratch/$name.in" {out}<>"$scratch/$name.out"
	(
		# A program ends when all writers of its input have closed it.
		for fd in "$in" "$out" "${to[@]}" "${from[@]}"; do
			exec {fd}>&-
		done
		exec "$@" <"$scratch/$name.in" >"$scratch/$name.out" 2>>"$scratch/programs.log"
	) &
	pids[$name]=$!
	to[$name]=$in from[$name]=$out
}

# hear NAME: read the program's next line into $answer.
hear() {
	read -r -t 60 -u "${from[$1]}" answer || {
		sed 's/^/  /' "$scratch/programs.log" >&2
		fail "the program \"$1\" does not answer"
	}
}

# tell NAME TEXT: send the program a line, and wait for its answer.
tell() {
	echo "$2" >&"${to[$1]}"
	hear "$1"
}

# end NAME: end the program by closing its input.
end() {
	local name=$1 fd
	fd=${to[$name]}
	exec {fd}>&-
	wait "${pids[$name]}" || fail "the program \"$name\" ended with status $?: $(cat "$scratch/programs.log")"
	fd=${from[$name]}
	exec {fd}>&-
	rm "$scratch/$name.in" "$scratch/$name.out"
	unset "to[$name]" "from[$name]" "pids[$name]"
}

# begin_leased NAME LOAD DEPTH PERIOD [OPTION]...: start the Vulkan program in a lease, by brokerctl exec with these
# options. A PERIOD of 0 means none.
begin_leased() {
	local name=$1 arguments=("$2" "$3")
	[ "$4" = 0 ] || arguments+=("$4")
	shift 4
	begin "$name" env "${card[@]}" RINGBROKER_LEASE_LOG="$scratch/$name.log" \
		XDG_DATA_DIRS="$scratch/share:${XDG_DATA_DIRS:-/usr/local/share:/usr/share}" \
		"$brokerctl" --socket="$socket" exec --vram 64MiB "$@" -- "$submit_client" "${arguments[@]}"
	hear "$name"
	[ "$answer" = ready ] || fail "the program \"$name\" says: $answer"
}

# ---- Measurements ----

# measure NAME...: let the programs run for $seconds. Sets report[] and $elapsed_us.
measure() {
	local name begin_us
	for name in "$@"; do
		tell "$name" report
	done
	begin_us=$(now_us)
	sleep "$seconds"
	for name in "$@"; do
		tell "$name" report
		report[$name]=$answer
	done
	elapsed_us=$(($(now_us) - begin_us))
}

# Measure the ring client, beside the programs NAME... Sets $rate to its tasks per second.
measure_ring() {
	local begin_us n_tasks
	# The programs are not restrained before the broker has seen that the card has tasks.
	tell ring "start m"
	sleep 0.5
	tell ring "stop m"
	tell ring "start m"
	begin_us=$(now_us)
	measure "$@"
	tell ring "stop m"
	[[ $answer != *" 0:"* ]] || fail "tasks ran on the CPU: $answer"
	read -r _ _ n_tasks _ <<<"$answer"
	rate=$((n_tasks * 1000000 / ($(now_us) - begin_us)))
}

# Measure the urgent program, beside the programs NAME... Sets $p50_us and $p99_us.
measure_urgent() {
	sleep 0.5
	measure urgent "$@"
	read -r _ p50_us p99_us _ <<<"${report[urgent]}"
}

# Print the part of the card that the prefill had in the last measurement.
part() { echo "$((${report[prefill]%% *} * prefill_us * 100 / elapsed_us))%"; }

ms() { printf '%d.%d' $(($1 / 1000)) $(($1 / 100 % 10)); }

# begin_prefill PRIORITY WORK [OPTION]...: start the prefill.
begin_prefill() {
	local priority=$1 load=$((prefill_us / group_us / 100))x100
	# Recorded once, while the program is alone, a command buffer stays whole. For a second after a task of the ring
	# client it would be divided.
	if [ "$2" = whole ]; then
		load=$((prefill_us / group_us))
		sleep 1.2
	fi
	shift 2
	rm -f "$scratch/prefill.log"
	begin_leased prefill "$load" 3 0 ${priority:+--priority "$priority"} "$@"
}

# end_prefill WORK: end the prefill, and check by the layer's log whether command buffers were divided.
end_prefill() {
	local found=whole
	end prefill
	! grep -q "command buffers were divided [1-9]" "$scratch/prefill.log" || found=parts
	[ "$found" = "${1/off/whole}" ] || fail "the command buffers were submitted as \"$found\", not as \"${1/off/whole}\""
}

# measure_row TITLE WORK [OPTION]...: print a row of the table. WORK is off: without sharing, whole or parts.
measure_row() {
	local title=$1 work=$2 is_shared=1 line
	shift 2
	[ "$work" != off ] || is_shared=
	begin_prefill "${is_shared:+background}" "$work" "$@"
	begin_leased urgent "$urgent_groups" 1 "$period_us" ${is_shared:+--priority urgent}
	measure_urgent prefill
	printf -v line '%-37s%8s%9s%11s' "$title" "$(ms "$p50_us")" "$(ms "$p99_us")" "$(part)"
	end urgent
	end_prefill "$work"

	begin_prefill "${is_shared:+normal}" "$work" "$@"
	measure_ring prefill
	printf '%s%15d%11s\n' "$line" "$rate" "$(part)"
	end_prefill "$work"

	case $work in
	off) off_us=$p50_us off_rate=$rate ;;
	parts)
		if [ $((p50_us * 4)) -ge "$off_us" ] || [ "$rate" -le $((off_rate * 4)) ]; then
			echo "tools/demo: $title: not four times better than without sharing" >&2
			status=1
		fi
		;;
	esac
}

# Start the card, its broker, and the ring client, whose model multiplies by a matrix of 1 MiB.
prepare_card() {
	mkdir -p "$scratch/share/vulkan/implicit_layer.d"
	cp "$manifest" "$scratch/share/vulkan/implicit_layer.d/"
	: >"$policy" # ignore this machine's policy
	"$sim" init --dir "$scratch/cards" --card polaris10,vram=4GiB
	"$sim" set --dir "$scratch/cards" execution=timed policy=fifo job-ns=0 group-ns=$((group_us * 1000))
	mapfile -t card < <("$sim" env --dir "$scratch/cards")
	broker_env=("${card[@]}")
	# The simulator makes system calls in brokerd that its sandbox does not permit.
	start_broker auto --cache=none --calibration=none --contention=none --sandbox=log
	list_devices
	if [ "$(best_device)" != gpu ]; then
		echo "There is no Vulkan driver for AMD cards, which the simulated card needs."
		exit 77
	fi
	begin ring "$model_client" "$socket"
	tell ring "plan m 1"
	tell ring "await m vram"
}

share_time() {
	local card off_us off_rate p50_us p99_us rate elapsed_us answer
	prepare_card
	cat <<-EOF
		A program computes as for a long prompt of a language model ("prefill"): it has 3 submissions of $((prefill_us / 1000)) ms with 100
		dispatches each under way. Beside it runs an urgent program with a job of 1 ms each $((period_us / 1000)) ms, and then a ring
		client that runs a small model, one task after the other. With sharing:

		    brokerctl exec --vram 64MiB --priority background -- prefill
		    brokerctl exec --vram 64MiB --priority urgent -- urgent-program

		Beside the ring client the prefill has the priority normal, since a client that always has a task leaves nothing
		to background work. Command buffers that a program records once, while it is alone, stay whole; others are
		divided into parts of 500 us, or as option --max-part says.

		The card is simulated: it computes nothing, and does one submission after the other in the order in which they
		came, so the figures say what a card with such a queue would do.

		                                        urgent job, ms    prefill    ring client,   prefill
		                                          p50      p99        has    tasks per s        has
	EOF
	measure_row "sharing off" off
	measure_row "sharing on, command buffers whole" whole
	measure_row "sharing on, parts of 500 us (default)" parts
	measure_row "sharing on, parts of 200 us" parts --max-part 200us
	begin_leased urgent "$urgent_groups" 1 "$period_us"
	measure_urgent
	end urgent
	measure_ring
	printf '\nAlone, the urgent job takes %s ms (p50), and the ring client has %d tasks per second.\n' "$(ms "$p50_us")" "$rate"
	end ring
	stop "$broker"
	broker=
	[ "$status" -ne 0 ] || echo "In parts, both programs fare more than four times better than without sharing."
}
