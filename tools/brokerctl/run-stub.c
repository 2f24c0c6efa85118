/* SPDX-License-Identifier: MIT */
/* brokerctl run, where the library that reads ONNX files is not built. */
#include "command.h"

int run_model(struct control *control, const struct arguments *arguments)
{
	return control_fail(EXIT_USAGE, "this brokerctl was built without ONNX");
}

bool run_made_operator(unsigned int i, struct made_operator *ret)
{
	return false;
}
