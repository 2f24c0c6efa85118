/* SPDX-License-Identifier: MIT */
/*
 * brokerctl lease: the size of a lease, how it shares its device, and where its memory is. Each
 * change is followed by what the lease's record then has.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <ringbroker/lease.h>

#include "broker/util/size.h"
#include "command.h"
#include "objects.h"
#include "output.h"
#include "records.h"
#include "util/number.h"

/* Programs report once a second what they can move. */
enum { REPORT_WAITS = 12 };
static const struct timespec report_wait = {.tv_nsec = 100000000};

/* A lease's record, and the pages that have it. */
struct shown {
	struct pages pages;
	const struct rbk_stats_view *view;
	struct rbk_stats_lease lease;
	bool has_ended; /* there is no record */
};

/*
 * Map a lease's record, once it shows what was changed if @is_changed. Return: false: there is
 * none, and nothing is mapped; standard error says why if that is not because the lease has ended.
 */
static bool shown_map(struct control *control, uint32_t number, bool is_changed, struct shown *ret)
{
	ret->has_ended = false;
	if (control_map_root(control, &ret->pages))
		return false;
	ret->view = ret->pages.has_all ? &ret->pages.root : &ret->pages.tenants[0].view;
	if (is_changed)
		await_updates(ret->view);
	for (uint32_t i = 0; i < rbk_stats_used(ret->view, RBK_STATS_SECTION_LEASES); i++)
		if (lease_copy(ret->view, i, &ret->lease) && ret->lease.number == number)
			return true;
	pages_unmap(&ret->pages);
	ret->has_ended = true;
	return false;
}

/* Read a lease's record, once it shows what its programs can move; programs may tell nothing. */
static bool shown_map_movable(struct control *control, uint32_t number, struct shown *ret)
{
	for (unsigned int i = 0; shown_map(control, number, i == 0, ret); i++) {
		if (ret->lease.movable_bytes > 0 || i == REPORT_WAITS)
			return true;
		pages_unmap(&ret->pages);
		nanosleep(&report_wait, NULL);
	}
	return false;
}

/* The change was made, and its record was not shown. */
static int say_unshown(const struct shown *shown, uint32_t number)
{
	return control_fail(EXIT_OK,
			    shown->has_ended
				    ? "lease %u has ended meanwhile"
				    : "lease %u was changed; the broker does not show it now",
			    (unsigned int)number);
}

/* --- Where its memory is --- */

/* Say what comes back, of a lease as it was before. */
static void say_awake(const struct rbk_stats_lease *lease)
{
	printf("lease %u is awake", lease->number);
	if (lease->moved_bytes > 0)
		printf(": %s comes back with its programs' next submissions",
		       text_bytes(lease->moved_bytes));
	printf("\n");
}

/* Say what the lease's programs can do, as far as they have told. */
static void say_sleeps(const struct rbk_stats_lease *lease, bool is_held, bool was_held)
{
	printf("lease %u %s", lease->number,
	       is_held    ? "is held until brokerctl lease wake"
	       : was_held ? "is no longer held, and sleeps"
			  : "sleeps");
	if (lease->movable_bytes == 0)
		printf(": no memory of its programs can be moved, which is so for programs without "
		       "--sleep of brokerctl exec, and where the driver cannot, as the layer has "
		       "said on their standard error\n");
	else
		printf(": %s of %s can go to host memory, once its programs are idle\n",
		       text_bytes(lease->movable_bytes),
		       /* A program that frees at once may have told only one of them. */
		       text_bytes(max_u64(lease->used_bytes + lease->moved_bytes,
					  lease->movable_bytes)));
}

static int change_sleep(struct control *control, const struct arguments *arguments, uint32_t number,
			enum rbk_lease_sleep state)
{
	struct rbk_error error = {""};
	struct rbk_stats_lease before = {.number = number};
	struct shown shown;
	bool is_found;
	int r;

	if (shown_map(control, number, false, &shown)) {
		before = shown.lease;
		pages_unmap(&shown.pages);
	}
	r = rbk_lease_sleep(control->rbk, number, state, &error);
	if (r)
		return control_refused(control, r, &error);
	is_found = state == RBK_LEASE_AWAKE ? shown_map(control, number, true, &shown)
					    : shown_map_movable(control, number, &shown);
	if (!is_found)
		return say_unshown(&shown, number);
	if (arguments->values[OPT_JSON])
		json_lease(shown.view, &shown.lease);
	else if (state == RBK_LEASE_AWAKE)
		say_awake(&before);
	else
		say_sleeps(&shown.lease, state == RBK_LEASE_HELD,
			   before.flags & RBK_STATS_LEASE_HELD);
	pages_unmap(&shown.pages);
	return EXIT_OK;
}

/* Carry out lease sleep, or lease wake. */
static int run_sleep(struct control *control, const struct arguments *arguments, uint32_t number,
		     bool sleeps)
{
	enum rbk_lease_sleep state = RBK_LEASE_AWAKE;
	int status;

	if (arguments->values[OPT_LEASE_VRAM] || arguments->values[OPT_LEASE_PRIORITY] ||
	    arguments->values[OPT_LEASE_SHARE])
		return control_misuse(arguments, "change the size, the priority or the share by "
						 "lease NUMBER, without sleep or wake");
	if (!sleeps && arguments->values[OPT_HOLD])
		return control_misuse(arguments, "--hold is an option of lease sleep");
	if (sleeps)
		state = arguments->values[OPT_HOLD] ? RBK_LEASE_HELD : RBK_LEASE_SLEEPS;
	status = control_connect_to_change(control);
	return status == EXIT_OK ? change_sleep(control, arguments, number, state) : status;
}

/* --- Its share of the device's time --- */

int lease_sharing(const struct arguments *arguments, struct lease_sharing *ret)
{
	static const struct {
		const char *name;
		enum rbk_priority priority;
	} priorities[] = {{"urgent", RBK_PRIORITY_URGENT},
			  {"normal", RBK_PRIORITY_NORMAL},
			  {"background", RBK_PRIORITY_LOW},
			  {"none", RBK_PRIORITY_NONE}};
	const bool is_lease = arguments->command->options & TAKES(OPT_LEASE_PRIORITY);
	/* A program without a priority is started without the option. */
	const unsigned int n = sizeof(priorities) / sizeof(priorities[0]) - !is_lease;
	const char *priority = arguments->values[is_lease ? OPT_LEASE_PRIORITY : OPT_PRIORITY];
	const char *share = arguments->values[is_lease ? OPT_LEASE_SHARE : OPT_SHARE];
	uint64_t number = 0;

	*ret = (struct lease_sharing){.has_priority = false};
	for (unsigned int i = 0; priority && i < n; i++)
		if (strcmp(priority, priorities[i].name) == 0) {
			ret->has_priority = true;
			ret->priority = priorities[i].priority;
		}
	if (priority && !ret->has_priority)
		return control_misuse(arguments, "--priority is urgent, normal%s, not %s",
				      is_lease ? ", background or none" : " or background",
				      priority[0] ? text_name(priority) : "empty");
	if (share && (!pages_number(share, RBK_LEASE_MAX_SHARE, &number) || number == 0))
		return control_misuse(arguments, "--share takes a number from 1 to %d, not %s",
				      RBK_LEASE_MAX_SHARE, share[0] ? text_name(share) : "empty");
	ret->share = (uint32_t)number;
	return EXIT_OK;
}

/* Return the name of the priority that counts, of a lease that shares its device. */
static const char *priority_shown(const struct rbk_stats_lease *lease)
{
	return lease->flags & RBK_STATS_LEASE_URGENT       ? "urgent"
	       : lease->flags & RBK_STATS_LEASE_HIGH       ? "high"
	       : lease->flags & RBK_STATS_LEASE_BACKGROUND ? "background"
							   : "normal";
}

static void say_sharing(const struct shown *shown, const struct lease_sharing *sharing,
			const char *priority)
{
	const struct rbk_stats_lease *lease = &shown->lease;
	const bool is_sharing = lease->flags & RBK_STATS_LEASE_SHARING;
	const char *tenant = tenant_name(shown->view, lease->tenant);

	if (sharing->has_priority && sharing->priority == RBK_PRIORITY_NONE)
		printf("lease %u does not share its device's time any more\n", lease->number);
	else if (sharing->has_priority && !is_sharing)
		printf("lease %u has priority %s: its programs share the device from their next "
		       "submissions on, if the layer runs in them\n",
		       lease->number, priority);
	else if (sharing->has_priority && strcmp(priority_shown(lease), priority) != 0)
		printf("lease %u has priority %s, which priority-max of tenant %s lowers to %s\n",
		       lease->number, priority, tenant ? text_name(tenant) : "-",
		       priority_shown(lease));
	else if (sharing->has_priority)
		printf("lease %u has priority %s\n", lease->number, priority);
	if (sharing->share)
		printf("lease %u has share %u among the leases of its tenant, of which each has "
		       "100 by default; a share is no limit\n",
		       lease->number, sharing->share);
}

/* --- Its size --- */

static void say_size(const struct rbk_stats_lease *lease, uint64_t wish_bytes)
{
	const uint64_t more_bytes = saturating_sub(lease->granted_bytes, wish_bytes);
	const uint64_t movable_bytes = saturating_sub(lease->movable_bytes, lease->moved_bytes);

	printf("lease %u has %s", lease->number, text_bytes(lease->granted_bytes));
	if (more_bytes > 0 && movable_bytes > 0)
		printf(", and gives back %s: its programs can move %s to host memory while they "
		       "are idle, and have to free the rest",
		       text_bytes(more_bytes), text_bytes(min_u64(more_bytes, movable_bytes)));
	else if (more_bytes > 0)
		printf(", and gives back %s once its programs free it; none of it can be moved",
		       text_bytes(more_bytes));
	else if (lease->granted_bytes < wish_bytes)
		printf(" of %s: %s", text_bytes(wish_bytes),
		       lease->flags & (RBK_STATS_LEASE_SLEEPS | RBK_STATS_LEASE_HELD)
			       ? "it sleeps, and grows when its programs go on"
			       : "there is no room for more now");
	printf("\n");
}

static int change(struct control *control, const struct arguments *arguments, uint32_t number,
		  uint64_t wish_bytes, const struct lease_sharing *sharing)
{
	const bool shares = sharing->has_priority || sharing->share > 0;
	struct rbk_error error = {""};
	struct shown shown;
	int r = 0, status = EXIT_OK;

	if (wish_bytes > 0)
		r = rbk_lease_resize(control->rbk, number, wish_bytes, NULL, &error);
	if (r)
		return control_refused(control, r, &error);
	if (shares)
		r = rbk_lease_share(control->rbk, number,
				    sharing->has_priority ? &sharing->priority : NULL,
				    sharing->share, &error);
	if (r)
		status = control_refused(control, r, &error);
	/* A size that was changed is shown, whether the rest was refused or not. */
	if (r && wish_bytes == 0)
		return status;
	if (!shown_map(control, number, true, &shown)) {
		say_unshown(&shown, number);
		return status;
	}
	if (arguments->values[OPT_JSON]) {
		json_lease(shown.view, &shown.lease);
	} else {
		if (wish_bytes > 0)
			say_size(&shown.lease, wish_bytes);
		if (shares && !r)
			say_sharing(&shown, sharing, arguments->values[OPT_LEASE_PRIORITY]);
	}
	pages_unmap(&shown.pages);
	return status;
}

/* --- The command --- */

static int run_change(struct control *control, const struct arguments *arguments, uint32_t number)
{
	const char *size = arguments->values[OPT_LEASE_VRAM];
	uint64_t wish_bytes = 0;
	struct lease_sharing sharing;
	int status;

	if (arguments->values[OPT_HOLD])
		return control_misuse(arguments, "--hold is an option of lease sleep");
	status = lease_sharing(arguments, &sharing);
	if (status)
		return status;
	if (!size && !sharing.has_priority && sharing.share == 0)
		return control_misuse(arguments,
				      "lease %u would not change: give at least one of --priority, "
				      "--share and --vram",
				      (unsigned int)number);
	if (size && (!size_parse(size, &wish_bytes) || wish_bytes == 0))
		return control_misuse(arguments,
				      "--vram takes the size of the lease, such as 4GiB, not %s",
				      text_name(size));
	status = control_connect_to_change(control);
	return status == EXIT_OK ? change(control, arguments, number, wish_bytes, &sharing)
				 : status;
}

int run_lease(struct control *control, const struct arguments *arguments)
{
	const char *word = arguments->operands[0];
	const bool sleeps = strcmp(word, "sleep") == 0, wakes = strcmp(word, "wake") == 0;
	const char *text = arguments->operands[arguments->n_operands - 1];
	uint64_t number;

	if (arguments->n_operands > 1 && !sleeps && !wakes)
		return control_misuse(arguments, "a lease can sleep or wake, not %s",
				      text_name(word));
	if (arguments->n_operands == 1 && (sleeps || wakes))
		return control_misuse(arguments, "NUMBER is missing; see brokerctl leases");
	if (!pages_number(text, UINT32_MAX, &number) || number == 0)
		return control_misuse(arguments,
				      "%s is not the number of a lease; see brokerctl leases",
				      text_name(text));
	return arguments->n_operands > 1 ? run_sleep(control, arguments, (uint32_t)number, sleeps)
					 : run_change(control, arguments, (uint32_t)number);
}
