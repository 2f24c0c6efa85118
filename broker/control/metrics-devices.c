/* SPDX-License-Identifier: MIT */
/* Metrics of devices. */
#include "control/metrics-private.h"

#include <stdio.h>

#include "util/checked.h"

static const struct member device_members[] = {
	COUNTER(rbk_stats_device, n_failed, COUNT, SINCE_RESET, "device_task_errors",
		"Tasks that ran there and failed"),
	COUNTER(rbk_stats_device, n_explored, COUNT, SINCE_RESET, "device_explored_tasks",
		"Tasks that ran there so that the broker learns"),
	COUNTER(rbk_stats_device, exec_ns, NS, SINCE_RESET, "device_execution_seconds",
		"Times of its tasks from start to end, together"),
	COUNTER(rbk_stats_device, device_ns, NS, SINCE_RESET, "device_busy_seconds",
		"Time that its servers worked, together"),
	GAUGE(rbk_stats_device, n_servers, NUMBER, "device_servers",
	      "Tasks that it works on at once"),
	GAUGE(rbk_stats_device, utilization, REAL, "device_utilization_ratio",
	      "How busy the broker keeps its servers"),
	GAUGE(rbk_stats_device, backlog_ns, NS, "device_backlog_seconds",
	      "Predicted time until it has nothing left to do"),
	GAUGE(rbk_stats_device, n_queued, COUNT, "device_queued_tasks",
	      "Tasks that wait in the broker"),
	GAUGE(rbk_stats_device, n_released, COUNT, "device_released_tasks",
	      "Tasks that the device has"),
	GAUGE(rbk_stats_device, success_rate, REAL, "device_success_ratio",
	      "Tasks that went well, of the last ones"),
	COUNTER(rbk_stats_device, n_opened, COUNT, SINCE_START, "device_breaker_opened",
		"How often its breaker opened, because too many tasks failed"),
	COUNTER(rbk_stats_device, n_stalls, NUMBER, SINCE_START, "device_stalls",
		"How often it had tasks and made no progress"),
	GAUGE(rbk_stats_device, contention, REAL, "device_contention_ratio",
	      "How many times longer execution takes than undisturbed"),
	GAUGE(rbk_stats_device, explored_share, REAL, "device_explored_ratio",
	      "Execution time that was lost to learning"),
	FLAG_OF(rbk_stats_device, flags, RBK_STATS_DEVICE_LOST, "device_lost",
		"Is it gone, and being reopened"),
	FLAG_OF(rbk_stats_device, flags, RBK_STATS_DEVICE_DRAINED, "device_drained",
		"Is nothing new placed there, as an administrator asked"),
	GAUGE(rbk_stats_device, memory_total, COUNT, "device_memory_size_bytes",
	      "Memory of its own"),
	GAUGE(rbk_stats_device, memory_used, COUNT, "device_memory_used_bytes",
	      "Of that, used by everybody"),
	GAUGE(rbk_stats_device, memory_outside, COUNT, "device_memory_outside_bytes",
	      "Of that, used by other programs than the broker"),
	GAUGE(rbk_stats_device, memory_budget, COUNT, "device_memory_budget_bytes",
	      "Of that, what all tenants together can have"),
	GAUGE(rbk_stats_device, memory_charged, COUNT, "device_memory_charged_bytes",
	      "Of that, what tenants are charged for"),
	GAUGE(rbk_stats_device, gtt_total, COUNT, "device_gtt_size_bytes",
	      "Host memory that it can use"),
	GAUGE(rbk_stats_device, gtt_used, COUNT, "device_gtt_used_bytes",
	      "Of that, used by everybody"),
	COUNTER(rbk_stats_device, n_driver_evictions, COUNT, SINCE_NOTHING,
		"device_driver_evictions",
		"Buffers that its driver moved out of device memory, since it was loaded"),
	GAUGE(rbk_stats_device, load_percent, PERCENT, "device_load_ratio",
	      "How busy it is with everybody's work, as its driver says"),
	GAUGE(rbk_stats_device, memory_load_percent, PERCENT, "device_memory_load_ratio",
	      "How busy its memory is, likewise"),
	GAUGE(rbk_stats_device, clock_hz, COUNT, "device_clock_hertz", "Its clock"),
	GAUGE(rbk_stats_device, memory_clock_hz, COUNT, "device_memory_clock_hertz",
	      "Its memory's clock"),
	GAUGE(rbk_stats_device, temperature_millicelsius, MILLI, "device_temperature_celsius",
	      "Its temperature"),
	GAUGE(rbk_stats_device, power_microwatts, MICRO, "device_power_watts", "What it draws"),
};

static void write_device_info(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family family = {
		"device", "What a device is, and how it reaches clients' memory", METRICS_INFO};
	static const char *const kinds[] = {"cpu", "gpu", "software-gpu"};
	char labels[4 * METRICS_LABEL_BYTES], name[METRICS_LABEL_BYTES],
		driver[METRICS_LABEL_BYTES], paths[METRICS_LABEL_BYTES];

	metrics_begin(text, &family);
	for (uint32_t i = 0; i < page->n_devices; i++) {
		const struct rbk_stats_device *device = &page->devices[i];

		metrics_escape(name, sizeof(name), device->name);
		metrics_escape(driver, sizeof(driver), device->driver);
		metrics_escape(paths, sizeof(paths), device->paths);
		snprintf(labels, sizeof(labels),
			 "device=\"%u\",name=\"%s\",driver=\"%s\",kind=\"%s\",paths=\"%s\"", i,
			 name, driver,
			 device->kind < ARRAY_SIZE(kinds) ? kinds[device->kind] : "unknown", paths);
		metrics_count(text, NULL, labels, NULL, 1);
	}
}

static void write_breakers(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family family = {
		"device_breaker_state",
		"Is its breaker closed (it is used), open (it failed too often) or probing",
		METRICS_GAUGE};
	static const char *const states[] = {
		[RBK_STATS_BREAKER_CLOSED] = "state=\"closed\"",
		[RBK_STATS_BREAKER_OPEN] = "state=\"open\"",
		[RBK_STATS_BREAKER_PROBING] = "state=\"probing\"",
	};
	char label[32];

	metrics_begin(text, &family);
	for (uint32_t i = 0; i < page->n_devices; i++) {
		metrics_device_label(label, i);
		for (uint32_t state = 0; state < ARRAY_SIZE(states); state++)
			metrics_count(text, NULL, label, states[state],
				      page->devices[i].breaker == state);
	}
}

void metrics_write_devices(const struct metrics_page *page, struct metrics_text *text)
{
	static const struct metrics_family tasks = {
		"device_tasks", "Tasks that ran there, by why they did", METRICS_COUNTER};
	char label[32];

	write_device_info(page, text);
	metrics_begin(text, &tasks);
	for (uint32_t i = 0; i < page->n_devices; i++) {
		metrics_device_label(label, i);
		metrics_write_reasons(page, text, page->devices[i].reasons, label);
	}
	write_breakers(page, text);
	for (size_t k = 0; k < ARRAY_SIZE(device_members); k++) {
		metrics_begin(text, &device_members[k].family);
		for (uint32_t i = 0; i < page->n_devices; i++) {
			metrics_device_label(label, i);
			metrics_write_member(page, text, &device_members[k], &page->devices[i],
					     label, NULL);
		}
	}
}
