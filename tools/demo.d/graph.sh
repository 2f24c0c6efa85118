# shellcheck shell=bash disable=SC2154 # variables of tools/demo, which has set -euo pipefail
# SPDX-License-Identifier: MIT
# Demo of a model that is larger than its budget: see tools/demo. Needs $model_data and the definitions of
# broker.sh.

readonly brokerctl=$build/tools/brokerctl/brokerctl
# vram-max of the tenant, in KiB: at first, then lowered, then raised. The whole model needs some 8 MiB.
readonly budgets_kib=(5120 2048 7900)
readonly serve_s=11

ctl() {
	"$brokerctl" --socket="$socket" "$@" || fail "brokerctl $1 failed"
}

# member NAME FILE: print the last number of that name in a JSON object.
member() {
	sed -n "s/.*\"$1\":\\([0-9.e+-]*\\).*/\\1/p" "$2"
}

# set_budget KIB: change the tenant's vram-max while it runs tasks, and wait until what is in device memory fits
# and fills half of it. Sets $resident_kib.
set_budget() {
	local kib=$1 i
	printf '$ brokerctl set default vram-max=%dKiB\n' "$kib"
	ctl set default "vram-max=${kib}KiB" >/dev/null
	for ((i = 0; i < 40; i++)); do
		sleep 0.2
		ctl plans --json >"$scratch/plans"
		resident_kib=$(($(member resident_bytes "$scratch/plans" || true) / 1024))
		[ "$resident_kib" -gt "$kib" ] || [ "$resident_kib" -lt $((kib / 2)) ] || return 0
	done
	fail "$resident_kib KiB are in device memory: $(cat "$scratch/plans" "$scratch/ran")"
}

# Print how much of the plan is in device memory, and where the segments of the last task ran.
look() {
	local n_segments index path i
	n_segments=$(member segments "$scratch/plans")
	[ "${n_segments:-1}" -gt 1 ] || fail "the plan is not cut: $(cat "$scratch/plans")"
	printf '  %d of %d segments, %d KiB, are in device memory' "$(member segments_resident "$scratch/plans")" \
		"$n_segments" "$resident_kib"
	# The client goes on, and a log has only so many segments.
	for ((i = 0; i < 20; i++)); do
		index=$(ctl decisions --last=1 --json | sed -n 's/.*"index":\([0-9]*\).*/\1/p')
		path=$("$brokerctl" --socket="$socket" why task "#$index" 2>/dev/null |
			sed -n 's/^  - its segments ran one after the other: //p')
		[ -z "$path" ] || break
	done
	[ -n "$path" ] || fail "no segments are logged"
	printf '\n  the time of a task: %s\n' "$path"
}

graph() {
	local model=$model_data/models/fr_pose svg=$build/graph.svg kib client tracer
	if [ ! -f "$model/model.onnx" ]; then
		echo "There is no $model/model.onnx (see --data)"
		exit 77
	fi
	[ -e "$build/libclient/onnx/libringbroker-onnx.so" ] || fail "this build does not read ONNX files"
	: >"$policy"
	: >"$scratch/ran"
	start_broker software --device-memory=8MiB
	list_devices
	if [ "$(best_device)" = cpu ]; then
		echo "No Vulkan device was found: a model is not cut for a device that is not there."
		exit 77
	fi
	echo "A model of 8 MiB (the pose of a head), cut over the CPU and software Vulkan, which stands in for a small card."
	echo "A client runs it for $serve_s s with --device=prefer-gpu, while the budget of its tenant changes."
	echo
	# The plan is cut for the budget that its tenant has when it is added.
	ctl set default "vram-max=${budgets_kib[0]}KiB" >/dev/null
	"$brokerctl" --socket="$socket" run --device=prefer-gpu --seconds="$serve_s" --json --rtol=1e-3 --atol=1e-5 \
		--input=input="$model/in0.npy" --expect=output="$model/out0.npy" --expect=617="$model/out1.npy" \
		--expect=618="$model/out2.npy" "$model/model.onnx" >"$scratch/ran" 2>&1 &
	client=$!
	"$brokerctl" --socket="$socket" trace --svg --seconds=$((serve_s - 2)) --output="$svg" 2>/dev/null &
	tracer=$!
	sleep 2
	for kib in "${budgets_kib[@]}"; do
		set_budget "$kib"
		look
		sleep 2
	done
	wait "$tracer" || fail "brokerctl trace failed"
	wait "$client" || fail "the client failed, or its outputs differ: $(cat "$scratch/ran")"
	stop "$broker"
	broker=
	printf '\n%d runs; the outputs of the last one are those of ONNX Runtime.\n' "$(member runs "$scratch/ran")"
	echo "The time line of the CPU and the device is in $svg"
}
