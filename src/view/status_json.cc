#include <cmath>

#include "base/calendar.h"
#include "base/json_writer.h"
#include "gpu/throttle.h"
#include "view/holders.h"
#include "view/status.h"

namespace lull {
namespace {

// A mean has no more to say than thousandths.
double rounded(double value) { return std::round(value * 1000) / 1000; }
std::optional<double> rounded(const std::optional<double>& value) {
  return value ? std::optional(rounded(*value)) : std::nullopt;
}

std::string_view basis(Basis basis) {
  switch (basis) {
    case Basis::mean: return "mean";
    case Basis::instant: return "instant";
    case Basis::moments: return "moments";
    case Basis::unknown: break;
  }
  return "";
}

std::optional<std::string> time_text(const std::optional<WallTime>& time) {
  return time ? std::optional(format_rfc3339(*time)) : std::nullopt;
}

void put_process(JsonWriter& json, const Tenant& tenant, const Snapshot& snapshot) {
  json.begin_object().member("pid", tenant.pid);
  json.member("type", tenant.compute && tenant.graphics ? "C+G" : tenant.graphics ? "G" : "C");
  json.member("mem_used_bytes", tenant.memory_bytes);
  json.member("mps_server", tenant.mps_server);
  if (const ProcessInfo* info = known_process(tenant, snapshot); info != nullptr) {
    json.member("user", info->user).member("name", info->name).member("command", info->command_line());
    json.member("started", time_text(info->started)).member("parent_pid", info->parent);
    json.member_or_null("cgroup", info->cgroup).member_or_null("container", info->container);
  } else {
    for (const char* name : {"user", "name", "command", "started", "parent_pid", "cgroup", "container"})
      json.key(name).null();
  }
  json.end_object();
}

void put_metrics(JsonWriter& json, const Reading& reading) {
  const auto asked = [&](const MetricInfo& row) {
    return row.of == Of::gpu && reading.why_missing(row.metric) != Absence::not_asked;
  };
  for (const MetricInfo& row : kMetricTable)
    if (asked(row)) json.member(row.field, rounded(reading[row.metric]));
  json.member_or_null("util_basis", basis(reading.util_basis));
  json.member("util_coverage",
              reading.util_basis == Basis::mean ? std::optional(rounded(reading.util_coverage)) : std::nullopt);
  json.member_or_null("power_basis", basis(reading.power_basis));
  json.member("energy_joules", rounded(reading.energy_joules));
  json.member("mem_clock_mhz", rounded(reading.mem_clock_mhz));
  if (reading.throttle_reasons) {
    json.member("throttling", is_throttling(*reading.throttle_reasons));
    json.key("throttle_reasons").begin_array();
    for (const auto& word : throttle_words(*reading.throttle_reasons)) json.value(word);
    json.end_array();
  } else {
    json.key("throttling").null().key("throttle_reasons").null();
  }
  json.member("mig_mode", reading.mig_mode);
  json.member("asleep", reading.asleep);
  json.member("display_active", reading.display_active);
  json.member("memory_estimated", reading.memory_estimated);
  json.member("processes_hidden", reading.processes_hidden);
  json.key("unknown").begin_object();
  for (const MetricInfo& row : kMetricTable)
    if (const Absence why = reading.why_missing(row.metric); asked(row) && why != Absence::none)
      json.member(row.field, words(why));
  json.end_object();
}

void put_gpu(JsonWriter& json, const StatusView& view, std::size_t row) {
  const Device& device = view.snapshot.inventory->devices[view.devices[row]];
  const Reading& reading = view.snapshot.readings[view.devices[row]];
  const bool mig = device.kind == DeviceKind::mig;
  json.begin_object().member("index", device.index).member("kind", mig ? "mig" : "gpu");
  json.member("mig_index", mig ? std::optional(device.mig_index) : std::nullopt);
  json.member_or_null("uuid", device.uuid).member_or_null("name", device.name).member_or_null("pci", device.pci);
  json.member_or_null("error", device_trouble(device, reading));
  put_metrics(json, reading);
  json.key("processes");
  if (reading.tenants) {
    json.begin_array();
    for (const Tenant& tenant : *reading.tenants) put_process(json, tenant, view.snapshot);
    json.end_array();
  } else {
    json.null();
  }
  const StatusExtra extra = row < view.extras.size() ? view.extras[row] : StatusExtra{};
  json.member("idle_seconds", extra.idle_for
                                  ? std::optional(rounded(std::chrono::duration<double>(*extra.idle_for).count()))
                                  : std::nullopt);
  json.member("idle_at_least", extra.idle_for ? std::optional(extra.idle_for_longer) : std::nullopt);
  json.key("lease");
  if (extra.lease) {
    json.begin_object().member("user", extra.lease->user).member("pid", extra.lease->pid);
    json.member("command", extra.lease->command).member("since", time_text(extra.lease->since)).end_object();
  } else {
    json.null();
  }
  json.end_object();
}

}  // namespace

std::string status_json(const StatusView& view, int indent) {
  JsonWriter json(indent);
  json.begin_object().member("time", format_rfc3339(view.snapshot.wall));
  json.member_or_null("driver_version", view.snapshot.inventory->driver_version);
  json.key("gpus").begin_array();
  for (std::size_t row = 0; row < view.devices.size(); ++row) put_gpu(json, view, row);
  return json.end_array().end_object().take();
}

}  // namespace lull
