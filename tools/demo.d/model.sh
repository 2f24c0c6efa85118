# shellcheck shell=bash disable=SC2154 # variables of tools/demo, which has set -euo pipefail
# SPDX-License-Identifier: MIT
# Demo of a model from an ONNX file: see tools/demo. Needs $images, $model_data and the definitions of
# leases.sh.

readonly digits=$build/tools/brokerdemo/digits
title+=([known]="as is known")

# run_model_on DEVICE: run the model over all pictures there, and store the results for the table.
run_model_on() {
	local device=$1 repeat=3 options found
	# A software driver needs milliseconds per picture.
	[ "$device $(best_device)" != "gpu software-gpu" ] || repeat=1
	options=(--device "$device" --repeat "$repeat")
	printf '\n$ brokerctl run mnist.onnx --input pictures.npy --output %s.npy %s\n' "$device" \
		"${options[*]}"
	"$brokerctl" --socket="$socket" run "$mnist/mnist.onnx" --input "$scratch/pictures.npy" \
		--output "$scratch/$device.npy" "${options[@]}" --json >"$scratch/ran" ||
		fail "brokerctl run failed"
	# A JSON number may have an exponent.
	found=$(sed -n 's/.*"wall_ns":{"median":\([0-9.e+]*\).*/\1/p' "$scratch/ran")
	[ -n "$found" ] || fail "brokerctl run does not say how long it took"
	result[$device.run-ns]=$(LC_ALL=C printf %.0f "$found")
	result[$device.ran-on]=$(sed -n 's/.*"devices":\[{"device":[0-9]*,"name":"\([^"]*\)".*/\1/p' \
		"$scratch/ran")
	if [ "$device" = gpu ] && is_stand_in; then
		printf '%s\n' "${result[$device.ran-on]}"
	else
		printf '%s: %s\n' "${result[$device.ran-on]}" "$(format ms "${result[$device.run-ns]}")"
	fi
	count_right "$device" "$scratch/$device.npy"
}

# count_right NAME LOGITS: store the number of correct digits.
count_right() {
	result[$1.right]=$("$digits" right "$2" "$mnist/t10k_labels_u8.npy" "$images") ||
		fail "digits failed"
}

run_model() {
	local mnist=$model_data/real/mnist-cnn device
	local model_devices=(cpu gpu)
	if [ ! -f "$mnist/mnist.onnx" ]; then
		printf '\nNo model is shown: there is no %s (see --data)\n' "$mnist/mnist.onnx"
		return
	fi
	if [ ! -e "$build/libclient/onnx/libringbroker-onnx.so" ]; then
		printf '\nNo model is shown: this build does not read ONNX files\n'
		return
	fi
	: >"$policy"
	start_best_broker
	[ "$(best_device)" != cpu ] || model_devices=(cpu)
	[ "$what" != model ] || explain_stand_in
	printf '\nA convolutional network from an ONNX file, over %s pictures of digits\n' "$images"
	"$digits" pictures "$mnist/t10k_images_u8.npy" "$images" "$scratch/pictures.npy" ||
		fail "digits failed"
	for device in "${model_devices[@]}"; do
		run_model_on "$device"
	done
	stop "$broker"
	broker=
	count_right known "$mnist/expected_logits_t10k_f32.npy"

	columns=("${model_devices[@]}" known)
	for device in "${columns[@]}"; do
		result[$device.title]=${title[$device]}
	done
	printf '\n'
	row "" text title
	row "digits right" share right
	row "pictures per second" rate run-ns
	row "all of them" ms run-ns
	for device in "${model_devices[@]}"; do
		agree "$device" known || status=1
	done
}
