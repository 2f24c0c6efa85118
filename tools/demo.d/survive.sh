# shellcheck shell=bash disable=SC2034,SC2154 # variables of tools/demo, which has set -euo pipefail
# SPDX-License-Identifier: MIT
# Demo of a broker that is killed while clients classify: see tools/demo. Needs the definitions of classify.sh.

readonly max_deaths=10
n_deaths=0

# Kill the broker and start another one, as often as the clients have come so far.
kill_sometimes() {
	local n_done=0 name
	for name in "${devices[@]}"; do
		n_done=$((n_done + ${result[$name.progress]:-0}))
	done
	[ "$n_deaths" -lt "$max_deaths" ] || return 0
	[ $((n_done * (max_deaths + 1))) -ge $(((n_deaths + 1) * images * ${#devices[@]})) ] || return 0
	kill -KILL "$broker"
	wait "$broker" 2>/dev/null || true
	n_deaths=$((n_deaths + 1))
	start_broker "$gpu_mode"
}

# print_gaps NAME: print the gaps that a client has noticed. Each line of its gaps: the whole gap and the part until
# a broker answered, in ns, and the number of tasks that ran again.
print_gaps() {
	local name=$1 gap wait_ns n_again n=0 sum=0 longest=0 waits=0 tasks=0
	while read -r gap wait_ns n_again; do
		[ -n "$gap" ] || continue
		n=$((n + 1))
		sum=$((sum + gap))
		waits=$((waits + wait_ns))
		tasks=$((tasks + n_again))
		[ "$gap" -le "$longest" ] || longest=$gap
	done <<<"${gaps[$name]:-}"
	[ "$n" -gt 0 ] || fail "the client ${title[$name]} has not noticed that its broker died"
	printf '%s: %d gaps of %s on average, %s at most; %s of it until the next broker answered; %d tasks ran again\n' \
		"${title[$name]}" "$n" "$(format ms $((sum / n)))" "$(format ms "$longest")" \
		"$(format ms $((waits / n)))" "$tasks"
}

survive() {
	local device
	: >"$policy" # ignore this machine's policy
	start_best_broker
	cat <<-EOF
		Clients classify while their broker is killed (SIGKILL) $max_deaths times and started again. They were written
		without a word about that: the client library hands their memory, plans and rings to the next broker.

	EOF
	explain_stand_in
	devices=(cpu gpu)
	batch=([cpu]=16 [gpu]=16)
	[ "$(best_device)" != cpu ] || devices=(cpu)
	at_progress=kill_sometimes
	run "${devices[@]}"
	at_progress=
	read_peak
	stop "$broker"
	broker=
	run reference
	print_table "${devices[@]}" reference
	printf '\nbrokerd was killed %d times.\n' "$n_deaths"
	for device in "${devices[@]}"; do
		print_gaps "$device"
		agree "$device" reference || status=1
	done
	[ "$n_deaths" -gt 0 ] || status=1
	[ "$status" -ne 0 ] || echo "All agree to within $tolerance images$(same_neighbours)."
}
