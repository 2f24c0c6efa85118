/* SPDX-License-Identifier: MIT */
/* brokerctl lease sleep, lease wake: memory of idle programs goes to host memory, or comes back. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <ringbroker/lease.h>

#include "command.h"
#include "output.h"
#include "records.h"
#include "util/number.h"

/* Copy a lease's record, once it shows the change. Return: false: the lease has ended. */
static bool read_lease(struct control *control, uint32_t number, struct rbk_stats_lease *ret)
{
	struct pages pages;
	const struct rbk_stats_view *view;
	bool is_found = false;

	if (control_map_root(control, &pages))
		return false;
	view = pages.has_all ? &pages.root : &pages.tenants[0].view;
	for (uint32_t i = 0; !is_found && i < rbk_stats_used(view, RBK_STATS_SECTION_LEASES); i++)
		is_found = lease_copy(view, i, ret) && ret->number == number;
	pages_unmap(&pages);
	return is_found;
}

/* Say what the lease's programs can do, as far as they have told. */
static void say(struct control *control, uint32_t number, enum rbk_lease_sleep state)
{
	const struct timespec pause = {.tv_nsec = 100000000};
	struct rbk_stats_lease lease;
	unsigned int n = 0;

	/* Programs report once a second. */
	do
		if (!read_lease(control, number, &lease))
			return;
	while (lease.movable_bytes == 0 && state != RBK_LEASE_AWAKE && n++ < 12 &&
	       !nanosleep(&pause, NULL));
	if (state == RBK_LEASE_AWAKE) {
		printf("lease %u is awake", (unsigned int)number);
		if (lease.moved_bytes > 0)
			printf(": %s comes back with its programs' next submissions",
			       text_bytes(lease.moved_bytes));
		printf("\n");
		return;
	}
	printf("lease %u %s", (unsigned int)number,
	       state == RBK_LEASE_HELD ? "is held until brokerctl lease wake" : "sleeps");
	if (lease.movable_bytes == 0)
		printf(": no memory of its programs can be moved, which is so for programs without "
		       "--sleep of brokerctl exec, and where the driver cannot, as the layer has "
		       "said on their standard error\n");
	else
		printf(": %s of %s can go to host memory, once its programs are idle\n",
		       text_bytes(lease.movable_bytes),
		       /* A program that frees at once may have told only one of them. */
		       text_bytes(
			       max_u64(lease.used_bytes + lease.moved_bytes, lease.movable_bytes)));
}

int run_lease_sleep(struct control *control, const struct arguments *arguments)
{
	const char *what = arguments->operands[0];
	const bool sleeps = strcmp(what, "sleep") == 0;
	enum rbk_lease_sleep state = RBK_LEASE_AWAKE;
	struct rbk_error error = {""};
	uint64_t number;
	int status, r;

	if (arguments->n_operands < 2)
		return control_misuse(arguments, "--hold is an option of lease sleep NUMBER");
	if (!sleeps && strcmp(what, "wake") != 0)
		return control_misuse(arguments, "a lease can sleep or wake, not %s",
				      text_name(what));
	if (!pages_number(arguments->operands[1], UINT32_MAX, &number) || number == 0)
		return control_misuse(arguments,
				      "%s is not the number of a lease; see brokerctl leases",
				      text_name(arguments->operands[1]));
	if (arguments->values[OPT_LEASE_VRAM] || arguments->values[OPT_LEASE_PRIORITY] ||
	    arguments->values[OPT_LEASE_SHARE])
		return control_misuse(arguments, "change the size, the priority or the share by "
						 "lease NUMBER, without sleep or wake");
	if (!sleeps && arguments->values[OPT_HOLD])
		return control_misuse(arguments, "--hold is an option of lease sleep");
	if (sleeps)
		state = arguments->values[OPT_HOLD] ? RBK_LEASE_HELD : RBK_LEASE_SLEEPS;
	status = control_connect_to_change(control);
	if (status != EXIT_OK)
		return status;
	r = rbk_lease_sleep(control->rbk, (uint32_t)number, state, &error);
	if (r)
		return control_refused(control, r, &error);
	say(control, (uint32_t)number, state);
	return EXIT_OK;
}
