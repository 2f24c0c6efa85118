/* SPDX-License-Identifier: MIT */
/* brokerctl run in builds without the library that reads ONNX files. */
#include "command.h"

int run_model(struct control *control, const struct arguments *arguments)
{
	return control_fail(EXIT_USAGE, "this brokerctl was built without ONNX");
}

bool run_made_operator(unsigned int i, struct made_operator *ret)
{
	return false;
}
