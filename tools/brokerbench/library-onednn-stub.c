/* SPDX-License-Identifier: MIT */
/* Stub of library-onednn.c for builds without oneDNN's headers */
#include "library.h"

int library_open_onednn(struct library **ret, const char **ret_reason)
{
	*ret_reason = "built without the headers of oneDNN 2";
	return LIBRARY_E_ABSENT;
}
