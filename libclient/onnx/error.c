/* SPDX-License-Identifier: MIT */
/* Sentences about errors in a file or a model. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "libclient/onnx/model.h"

int onnx_error(struct rbk_error *error, int r, const char *format, ...)
{
	va_list args;

	if (!error)
		return r;
	errno = -r;
	va_start(args, format);
	vsnprintf(error->text, sizeof(error->text), format, args);
	va_end(args);
	for (char *c = error->text; *c; c++)
		if (*c < 0x20 || *c > 0x7e)
			*c = '?';
	return r;
}
