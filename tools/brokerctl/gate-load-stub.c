/* SPDX-License-Identifier: MIT */
/* Gate loading in builds without BPF programs: see gate.h. */
#include <stdio.h>

#include "gate.h"

struct gate_load *gate_load_new(const struct gate_plan *plan, char ret_text[GATE_TEXT_BYTES])
{
	snprintf(ret_text, GATE_TEXT_BYTES,
		 "this brokerctl was built without programs for the kernel (meson setup "
		 "-Dbpf=enabled)");
	return NULL;
}

bool gate_load_attach(struct gate_load *load, char ret_text[GATE_TEXT_BYTES])
{
	return false;
}

struct gate_load *gate_load_free(struct gate_load *load)
{
	return NULL;
}
