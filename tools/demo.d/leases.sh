# shellcheck shell=bash disable=SC2034,SC2154 # variables of tools/demo, which has set -euo pipefail
# SPDX-License-Identifier: MIT
# Demo of leases: a program that uses Vulkan itself, beside a client of the broker in the same tenant. See
# tools/demo. Needs the definitions of classify.sh.

readonly brokerctl=$build/tools/brokerctl/brokerctl brokertop=$build/tools/brokertop/brokertop
readonly plain_vulkan=$build/tools/brokerdemo/plain-vulkan
readonly manifest=$build/libclient/layer/built/ringbroker_lease.json

# The program uses 10 MiB for 12,000 images, and 46 MiB for all.
readonly lease_mib=16 few_images=12000 small_lease_mib=4 all_images=60000
title+=([studio]=studio)

# unexpected TEXT: report a result that is not as expected.
unexpected() {
	echo "tools/demo: $*" >&2
	status=1
}

# show PROGRAM ARGUMENT...: print the command line, and run brokerctl or brokertop.
show() {
	local program=$1
	shift
	printf '\n$ %s %s\n' "${program##*/}" "$*"
	"$program" --socket="$socket" "$@" || fail "${program##*/} failed"
}

# in_lease MIB ARGUMENT...: run plain-vulkan, which does not know of leases, under a lease. Replaces the shell,
# so call it in a subshell.
in_lease() {
	local options=(exec --tenant studio --vram "${1}MiB" --)
	shift
	printf '\n$ brokerctl %s plain-vulkan %s\n' "${options[*]}" "$*"
	export XDG_DATA_DIRS=$scratch/share:${XDG_DATA_DIRS:-/usr/local/share:/usr/share}
	exec "$brokerctl" --socket="$socket" "${options[@]}" \
		"$plain_vulkan" --device "$vulkan_name" "$@" 2>&1
}

# refused STATUS TEXT MIB ARGUMENT...: run in_lease, and check its exit status and output.
refused() {
	local expected=$1 text=$2 found=0
	shift 2
	(in_lease "$@" </dev/null >"$scratch/refused") || found=$?
	cat "$scratch/refused"
	echo "(status $found)"
	if [ "$found" != "$expected" ] || ! grep -q -e "$text" "$scratch/refused"; then
		unexpected "expected status $expected and \"$text\""
	fi
}

# await_statistics COMMAND...: wait until the command succeeds; figures are updated four times a second.
await_statistics() {
	local i
	for ((i = 0; i < 100; i++)); do
		"$brokerctl" --socket="$socket" leases --json >"$scratch/leases" ||
			fail "brokerctl leases failed"
		"$brokerctl" --socket="$socket" tenants --json >"$scratch/tenants" ||
			fail "brokerctl tenants failed"
		! "$@" || return 0
		sleep 0.1
	done
	unexpected "the condition does not hold after 10 s: $*"
}

# field FILE KEY: print the last value of that key for tenant studio; the last of its devices is the GPU.
field() { sed -n "/\"tenant\":\"studio\"/s/.*\"$2\":\([0-9]*\).*/\1/p" "$scratch/$1"; }

# Check that the ledger counts both: the memory granted to the program, and that of the index and its tasks.
has_both() {
	local required=${result[studio.1.required]}
	[ "$(field leases granted_bytes)" = $((lease_mib << 20)) ] &&
		[ "$(field leases used_bytes)" -ge $((9 << 20)) ] &&
		[ "$(field tenants memory_used)" -ge $((required + (lease_mib << 20))) ] &&
		[ "$(field tenants memory_used)" -le $((large_mib << 20)) ]
}
has_nothing() { [ ! -s "$scratch/leases" ] && [ "$(field tenants memory_used)" = 0 ]; }

# Start the program, which keeps its memory and computes until hold is closed.
start_program() {
	local i fd
	mkfifo "$scratch/hold"
	exec {hold}<>"$scratch/hold"
	(
		for fd in "$hold" "$said" "${todo[@]}"; do
			exec {fd}>&-
		done
		in_lease "$lease_mib" --hold "$few_images" <"$scratch/hold" >"$scratch/program"
	) &
	program=$!
	for ((i = 0; i < 600; i++)); do
		! grep -q "are right" "$scratch/program" 2>/dev/null || break
		kill -0 "$program" 2>/dev/null || break
		sleep 0.1
	done
	cat "$scratch/program"
	grep -q "are right" "$scratch/program" || fail "plain-vulkan does not run in a lease"
}

end_program() {
	local found=0
	exec {hold}>&-
	wait "$program" || found=$?
	printf '\nwhen its input ends:\n'
	tail -n +4 "$scratch/program"
	[ "$found" = 0 ] || unexpected "plain-vulkan ended with status $found"
}

prepare_leases() {
	mkdir -p "$scratch/share/vulkan/implicit_layer.d"
	cp "$manifest" "$scratch/share/vulkan/implicit_layer.d/"
	cat >"$policy" <<-EOF
		[tenant studio]
		match-uid = $(id -u)
		vram-max = ${large_mib}MiB
	EOF
	start_small_broker
	while read -r _ kind name; do
		[ "$kind" = cpu ] || vulkan_name=$name
	done <"$scratch/devices"
}

share_budget() {
	local round name kind vulkan_name hold program
	[ "$images" -le "$tenant_images" ] || images=$tenant_images
	if [ ! -x "$plain_vulkan" ]; then
		echo "This build has no Vulkan layer: there are no leases to show."
		return
	fi
	prepare_leases
	if [ -z "$broker" ]; then
		echo "No Vulkan device was found: there is no device memory to lease."
		return
	fi
	printf '\nA program that uses Vulkan directly, and a client with an index, in one tenant with %s MiB\n' \
		"$large_mib"
	batch[gpu]=16
	common=(--index "$index")
	start_tenants studio
	tell "await resident" studio
	tell "run @.1" studio
	start_program
	await_statistics has_both
	show "$brokerctl" leases
	show "$brokertop" --once --size=110x16
	ask "run @.2" studio
	refused 1 "VK_ERROR_OUT_OF_DEVICE_MEMORY" "$small_lease_mib" "$all_images"
	hear "run @.2" studio
	refused 125 "studio" "$large_mib" "$few_images"
	end_program
	tell "run @.3" studio
	end_tenants
	await_statistics has_nothing
	show "$brokerctl" leases
	stop "$broker"
	broker=
	[ -n "${result[reference.neighbours]:-}" ] || run reference
	for round in 1 2 3; do
		expect "studio.$round" resident user-preference 0
	done
	[ "$status" -eq 0 ] || return 0
	cat <<-EOF

		Tenant studio was charged for both: $(mib "${result[studio.1.required]}") for the index, and a lease of $lease_mib MiB, which is all
		of the device that the program sees. An allocation beyond the lease fails as it would on a smaller
		device; the client did not notice, and all $((3 * images * 5)) neighbours are the exact ones.
		In the end there was no lease, and the tenant had 0 bytes of the device.
	EOF
}
