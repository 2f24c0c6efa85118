# shellcheck shell=bash disable=SC2034,SC2154 # variables of tools/demo, which has set -euo pipefail
# SPDX-License-Identifier: MIT
# Demo of devices and tenants: see tools/demo. Needs $images, $build and the definitions of broker.sh.

readonly tolerance=3

# ---- Progress: one line, rewritten in place on a terminal ----

declare -A result=() ran=() gaps=()
at_progress= # function that runs whenever a client has come further
said_at=$SECONDS

progress() {
	local name text=
	for name in "$@"; do
		text+="${text:+, }${title[$name]} ${result[$name.progress]:-0}"
	done
	text="images of $images: $text"
	if [ -t 1 ]; then
		printf '\r%s\033[K' "$text"
		is_drawing=1
	elif [ $((SECONDS - said_at)) -ge 5 ]; then
		echo "$text"
		said_at=$SECONDS
	fi
}

# listen NAME...: process the output of the clients until all have ended.
listen() {
	local name key value
	while read -r name key value; do
		take_in "$name" "$key" "$value"
		[ "$key" != progress ] || progress "$@"
		[ "$key" != progress ] || [ -z "$at_progress" ] || "$at_progress"
	done
}

# take_in NAME KEY VALUE: process one line of a client's output.
take_in() {
	case $2 in
	ran) ran[$1]+="${ran[$1]:+$'\n'}$3" ;;
	gap) gaps[$1]+="${gaps[$1]:+$'\n'}$3" ;;
	*) result[$1.$2]=$3 ;;
	esac
}

# Images per task: enough to keep a device busy, few enough not to delay other clients.
declare -A batch=([cpu]=64 [gpu]=64)

# Options of all clients.
common=()

# run NAME...: start the clients, show their progress, and wait for them.
declare -A title=([cpu]=CPU [gpu]=Vulkan [reference]="exact integers")
run() {
	local name pid failed=
	rm -f "$scratch/said"
	mkfifo "$scratch/said"
	for name in "$@"; do
		local arguments=(--classify "$name" --batch "${batch[$name]:-}")
		[ "$name" != reference ] || arguments=(--reference)
		"$brokerdemo" "${arguments[@]}" --socket "$socket" --data "$data" --images "$images" \
			"${common[@]}" >"$scratch/said" &
		clients+=($!)
	done
	progress "$@"
	listen "$@" <"$scratch/said"
	rm "$scratch/said"
	for pid in "${clients[@]}"; do
		wait "$pid" || failed=1
	done
	clients=()
	progress_end
	[ -z "$failed" ] || fail "a client failed"
}

# ---- The table ----

mib() { printf '%d MiB' $((($1 + 524288) / 1048576)); }

# format HOW NUMBER: print a number for people, with one decimal.
format() {
	case $1 in
	us) printf '%d.%d us' $(($2 / 1000)) $(($2 / 100 % 10)) ;;
	ms) printf '%d.%d ms' $(($2 / 1000000)) $(($2 / 100000 % 10)) ;;
	rate) printf '%d.%d' $((images * 1000000000 / $2)) $((images * 10000000000 / $2 % 10)) ;;
	share)
		local tenths=$((($2 * 2000 / images + 1) / 2))
		printf '%d (%d.%d%%)' "$2" $((tenths / 10)) $((tenths % 10))
		;;
	*) printf '%s' "$2" ;;
	esac
}

# row TEXT HOW KEY: print one line of the table. Times of a stand-in for a GPU are left out.
row() {
	local name value line
	printf -v line '%-28s' "$1"
	for name in "${columns[@]}"; do
		value=${result[$name.$3]:-}
		[ -z "$value" ] || value=$(format "$2" "$value")
		[[ $name != gpu || ($2 != ms && $2 != rate) ]] || ! is_stand_in || value="no card"
		printf -v line '%s%-18s' "$line" "${value:--}"
	done
	echo "${line%"${line##*[! ]}"}"
}

print_table() {
	local name n reason device
	columns=("$@")
	for name in "$@"; do
		result[$name.title]=${title[$name]}
		result[$name.batch]=${batch[$name]:-}
	done
	printf '\n%s images, 5 nearest neighbours among 60000\n\n' "$images"
	row "" text title
	row "right" share right
	row "right by the nearest alone" share right-nearest
	row "images per second" rate run-ns
	row "images of a task, at most" text batch
	row "tasks, two in flight" text tasks
	row "round trip, p50" ms round-trip-p50-ns
	row "round trip, p99" ms round-trip-p99-ns
	row "of it on the device, p50" ms exec-p50-ns
	row "preparing the plan" ms prepare-ns
	row "bytes copied" text copied-bytes
	row "bytes moved by the device" text transferred-bytes
	printf '\n'
	for name in "$@"; do
		[ "$name" != reference ] || continue
		while read -r n reason device; do
			printf '%s asked for: %s tasks ran on %s; reason: %s\n' \
				"${title[$name]}" "$n" "$device" "$reason"
		done <<<"${ran[$name]}"
	done
	printf 'Each client has %s of constants; as one ended, the broker held %s of host memory and %s\n' \
		"$(mib "${result[cpu.constant-bytes]}")" "$(mib "$(most host-bytes)")" \
		"$(mib "$(most device-bytes)") of device memory; $(mib "$peak_bytes") were resident at most."
}

# Print the figures that are the same on every machine with a GPU, and on this one the speed of the GPU.
print_gains() {
	local times copied=$((result[cpu.copied-bytes] + result[gpu.copied-bytes])) how
	how="both devices read and wrote the clients' memory in place"
	[ "$copied" = 0 ] || how="this driver cannot use all memory of clients in place"
	printf '\nThe gain for the owner of a GPU:\n'
	if ! is_stand_in; then
		times=$((result[cpu.run-ns] * 10 / result[gpu.run-ns]))
		printf '  speed      the GPU classified %d.%d times as many images per second as the CPU\n' \
			$((times / 10)) $((times % 10))
	fi
	cat <<-EOF
		  overhead   $(format us "${overhead_ns% *}") for a small task, from submission to completion, without its computation
		             (tenth percentile of 2000; median $(format us "${overhead_ns#* }"); on a busy machine with waits for a processor)
		  placement  each client got the device that it asked for; without a wish the broker predicts the
		             completion on both devices and takes the earlier one
		  copies     $copied bytes: $how
		  memory     the index took $(mib "$(most device-bytes)") of device memory, charged to its tenant
	EOF
}

# most KEY: print the larger value of both clients.
most() {
	local cpu=${result[cpu.$1]:-0} gpu=${result[gpu.$1]:-0}
	echo $((cpu > gpu ? cpu : gpu))
}

# Read the broker's peak of resident memory, which includes shared arenas.
read_peak() {
	local key value
	peak_bytes=0
	while read -r key value _; do
		[ "$key" != VmHWM: ] || peak_bytes=$((value * 1024))
	done <"/proc/$broker/status"
}

# agree NAME NAME: check that both have about the same number of correct results.
agree() {
	local difference=$((result[$1.right] - result[$2.right]))
	[ "${difference#-}" -le $tolerance ] && return
	echo "tools/demo: ${title[$1]} has ${result[$1.right]} right, ${title[$2]}" \
		"${result[$2.right]}: they differ by more than $tolerance" >&2
	return 1
}

# Print a remark if all found exactly the same neighbours, not only the same number of correct results.
same_neighbours() {
	local name
	for name in "${devices[@]}"; do
		[ "${result[$name.neighbours]}" = "${result[reference.neighbours]}" ] || return 0
	done
	echo ", and all $((images * 5)) neighbours are the same"
}

# ---- Two devices ----

compare_devices() {
	local device overhead_ns
	: >"$policy" # ignore this machine's policy
	start_best_broker
	cat <<-EOF
		brokerd owns the GPU of a machine, and services share it:
		  - each task runs on the CPU or the GPU, with the same result, where it completes first;
		  - each tenant has a budget of device memory and a share of device time;
		  - tensors lie in memory that a client shares with the devices, so that they are not copied;
		  - programs that know nothing of the broker compute within a lease.

	EOF
	explain_stand_in
	cat "$scratch/broker.log"
	overhead_ns=$("$brokerdemo" --socket "$socket" --overhead) || fail "the overhead was not measured"

	devices=(cpu gpu)
	[ "$(best_device)" != software-gpu ] || batch[gpu]=16
	if [ "$(best_device)" = cpu ]; then
		echo "No Vulkan device was found: only the CPU classifies."
		devices=(cpu)
	fi
	run "${devices[@]}"
	read_peak
	stop "$broker"
	broker=
	run reference
	print_table "${devices[@]}" reference

	for device in "${devices[@]}"; do
		agree "$device" reference || status=1
	done
	[ ${#devices[@]} -lt 2 ] || agree cpu gpu || status=1
	[ ${#devices[@]} -lt 2 ] || print_gains
	[ "$status" -ne 0 ] || echo "All agree to within $tolerance images$(same_neighbours)."
}

# ---- Two tenants ----

# An index of 12,000 images needs 37 MiB of device memory, and 5 MiB more while two tasks run.
readonly index=12000 device_mib=128 small_mib=24 large_mib=64 reserve_mib=48 tenant_images=128
readonly tenants=(search batch)
title+=([search]=search [batch]="batch")
declare -A todo=() # by tenant: descriptor from which the client reads its orders

# write_policy MIB: write the policy file with that vram-max for tenant batch, replacing it atomically.
write_policy() {
	cat >"$policy.new" <<-EOF
		[tenant search]
		match-exe = $scratch/search
		match-uid = $(id -u)
		vram-max = ${large_mib}MiB
		vram-reserve = ${reserve_mib}MiB

		[tenant batch]
		match-exe = $scratch/batch
		vram-max = ${1}MiB
	EOF
	mv "$policy.new" "$policy"
}

# start_tenants NAME...: start each tenant's client as a copy of the program with its own name, which the policy
# matches.
start_tenants() {
	local name fd
	mkfifo "$scratch/said"
	exec {said}<>"$scratch/said"
	for name in "$@"; do
		cp "$brokerdemo" "$scratch/$name"
		LD_LIBRARY_PATH=$libraries "$scratch/$name" --help >"$scratch/help" 2>&1 ||
			fail "no program can run in ${TMPDIR:-/tmp}; set TMPDIR to a folder that permits it"
		mkfifo "$scratch/$name.todo"
		exec {fd}<>"$scratch/$name.todo"
		todo[$name]=$fd
		(
			# Close the other ends: a client ends when all writers of its input have closed it.
			for fd in "$said" "${todo[@]}"; do
				exec {fd}>&-
			done
			export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
			exec "$scratch/$name" --classify prefer-gpu --rounds --name "$name" --socket "$socket" \
				--data "$data" --images "$images" --batch "${batch[gpu]}" \
				"${common[@]}" <"$scratch/$name.todo" >"$scratch/said"
		) &
		clients+=($!)
	done
	hear prepare "$@"
}

# ask TEXT NAME...: order the clients to do TEXT, all at once; @ stands for the client's name.
ask() {
	local text=$1 name
	shift
	for name in "$@"; do
		result[$name.progress]=0
		echo "${text//@/$name}" >&"${todo[$name]}"
	done
}

# tell TEXT NAME...: order the clients like ask, and wait until they are done.
tell() {
	ask "$@"
	hear "$@"
}

# hear TEXT NAME...: process the clients' output until they have done TEXT.
hear() {
	local text=$1 name key value n_left pid
	shift
	n_left=$#
	while [ "$n_left" -gt 0 ]; do
		if read -r -t 1 -u "$said" name key value; then
			take_in "$name" "$key" "$value"
			[ "$key" != progress ] || progress "$@"
			[ "$key $value" != "done ${text//@/$name}" ] || n_left=$((n_left - 1))
			continue
		fi
		for pid in "${clients[@]}"; do
			kill -0 "$pid" 2>/dev/null || fail "a tenant's client failed"
		done
	done
	progress_end
}

# End the clients by closing their input.
end_tenants() {
	local fd pid
	for fd in "${todo[@]}" "$said"; do
		exec {fd}>&-
	done
	for pid in "${clients[@]}"; do
		wait "$pid" || fail "a tenant's client failed"
	done
	clients=()
	todo=()
	rm "$scratch/said"
}

# set_budget MIB: change vram-max of tenant batch in the policy file, and make brokerd reload it.
set_budget() {
	local i n_reloads
	n_reloads=$(grep -c "again: changed: batch" "$scratch/broker.log") || true
	write_policy "$1"
	kill -HUP "$broker"
	for ((i = 0; i < 600; i++)); do
		[ "$(grep -c "again: changed: batch" "$scratch/broker.log")" = "$n_reloads" ] || return 0
		sleep 0.1
	done
	fail "brokerd does not read its policy again"
}

# Convert the clients' results to cells of the table.
prepare_cells() {
	local round name run key n reason device
	for round in 1 2 3; do
		for name in "${tenants[@]}"; do
			run=$name.$round
			result[$run.budget]="$(mib "${result[$run.vram-max]}")"
			result[$run.reserved]="$(mib "${result[$run.vram-reserve]}")"
			result[$run.used]="$(mib "${result[$run.vram-used-max]}")"
			result[$run.moves]="${result[$run.evictions]}, ${result[$run.returns]}"
			for key in user-preference memory-constraint; do
				result[$run.$key]=0
			done
			while read -r n reason device; do
				[[ $device = CPU* ]] && device=CPU || device=Vulkan
				result[$run.$reason]="$n on $device"
			done <<<"${ran[$run]}"
		done
	done
}

print_tenants() {
	local name
	printf '\nTwo tenants on a device with %s MiB, %s images each, among %s; ' "$device_mib" \
		"$images" "$index"
	printf 'an index takes %s\n\n' "$(mib "${result[search.1.required]}")"
	printf '%-28s%-18s%-18s%s\n' "" "at first" "batch raised" "batch lowered"
	for name in "${tenants[@]}"; do
		columns=("$name.1" "$name.2" "$name.3")
		echo "$name"
		row "  vram-max" text budget
		row "  vram-reserve" text reserved
		row "  VRAM used at most" text used
		row "  its plan" text state
		row "  tasks, user-preference" text user-preference
		row "  tasks, memory-constraint" text memory-constraint
		row "  evictions, returns" text moves
		is_stand_in || row "  images per second" rate run-ns
		row "  right" share right
	done
	printf '\n'
}

# expect NAME STATE REASON EVICTIONS: check the result of a round.
expect() {
	local run=$1 n reason
	read -r n reason _ <<<"${ran[$run]}"
	[ "${result[$run.tenant]}" = "${run%.*}" ] &&
		[ "${result[$run.state]}" = "$2" ] &&
		[ "$reason $n" = "$3 ${result[$run.tasks]}" ] &&
		[ "${result[$run.evictions]}" = "$4" ] &&
		[ "${result[$run.vram-used-max]}" -le "${result[$run.vram-max]}" ] &&
		[ "${result[$run.neighbours]}" = "${result[reference.neighbours]}" ] && return
	echo "tools/demo: $run is tenant ${result[$run.tenant]}, its plan is ${result[$run.state]}," \
		"its tasks: ${ran[$run]}; evictions: ${result[$run.evictions]};" \
		"not as expected: $2, $3, $4, within its budget and with the exact neighbours" >&2
	status=1
}

# Start a broker with little device memory, on a software GPU if possible. Sets $broker, empty if there is no
# GPU, and $mode to the value of --gpu.
start_small_broker() {
	for mode in software auto; do
		start_broker "$mode" --device-memory="${device_mib}MiB"
		list_devices
		[ "$(best_device)" = cpu ] || break
		stop "$broker"
		broker=
	done
}

divide_memory() {
	local round
	[ "$images" -le "$tenant_images" ] || images=$tenant_images
	write_policy "$small_mib"
	start_small_broker
	if [ -z "$broker" ]; then
		echo "No Vulkan device was found: there is no device memory to divide."
		return
	fi
	batch[gpu]=16
	common=(--index "$index")
	start_tenants "${tenants[@]}"
	tell "run @.1" "${tenants[@]}"
	set_budget "$large_mib"
	tell "await resident" batch
	tell "run @.2" "${tenants[@]}"
	set_budget "$small_mib"
	tell "await never-fits" batch
	tell "run @.3" "${tenants[@]}"
	set_budget "$large_mib"
	tell "await resident" batch
	tell "look @.4" batch
	end_tenants
	stop "$broker"
	broker=
	run reference
	prepare_cells
	print_tenants

	for round in 1 2 3; do
		expect "search.$round" resident user-preference 0
	done
	expect batch.1 never-fits memory-constraint 0
	expect batch.2 resident user-preference 0
	expect batch.3 never-fits memory-constraint 1
	[ "${result[batch.4.returns]}" = 1 ] || {
		echo "tools/demo: after the second raise, batch's plan returned ${result[batch.4.returns]} times" >&2
		status=1
	}
	[ "$status" -eq 0 ] || return 0
	cat <<-EOF
		Where an index is larger than its tenant's vram-max, tasks run on the CPU. As brokerd read the
		raised budget (SIGHUP), it loaded batch's index into device memory; it evicted the index when the
		budget was lowered, and loaded it again when the budget was raised again. No client was restarted,
		and all $((6 * images * 5)) neighbours are those of exact integers: a budget can cost speed, never correctness.
	EOF
}
