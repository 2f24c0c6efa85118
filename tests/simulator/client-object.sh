#!/bin/sh
# SPDX-License-Identifier: MIT
# client-object.sh LIBRARY OBJECT: libringbroker's objects as one, for the simulator: see meson.build
set -eu
ld -r -o "$2" --whole-archive "$1"
objcopy --rename-section .data=client_data --rename-section .bss=client_bss \
	--weaken-symbol=client_fault_fd_new --weaken-symbol=client_may_hold_up_writers "$2"
