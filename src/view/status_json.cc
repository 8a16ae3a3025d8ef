// The one place where status meets the JSON library, which costs its includer a
// good second of compile time.

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/calendar.h"
#include "gpu/throttle.h"
#include "view/holders.h"
#include "view/status.h"

namespace lull {
namespace {

using Json = nlohmann::ordered_json;

// Whole numbers as such: 8589934592, not 8589934592.0.
Json number(double value) {
  if (std::isnan(value)) return nullptr;
  if (value == std::floor(value) && std::abs(value) < 9e15) return static_cast<std::int64_t>(value);
  return std::round(value * 1000) / 1000;
}

template <class T>
Json optional(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json basis(Basis basis) {
  switch (basis) {
    case Basis::mean: return "mean";
    case Basis::instant: return "instant";
    case Basis::moments: return "moments";
    case Basis::unknown: break;
  }
  return nullptr;
}

Json process(const Tenant& tenant, const Snapshot& snapshot) {
  Json json;
  json["pid"] = tenant.pid;
  json["type"] = tenant.compute && tenant.graphics ? "C+G" : tenant.graphics ? "G" : "C";
  json["mem_used_bytes"] = optional(tenant.memory_bytes);
  json["mps_server"] = tenant.mps_server;
  const ProcessInfo* info = known_process(tenant, snapshot);
  json["user"] = info != nullptr ? Json(info->user) : Json(nullptr);
  json["name"] = info != nullptr ? Json(info->name) : Json(nullptr);
  json["command"] = info != nullptr ? Json(info->command_line()) : Json(nullptr);
  json["started"] = info != nullptr && info->started ? Json(format_rfc3339(*info->started)) : Json(nullptr);
  json["parent_pid"] = info != nullptr ? Json(info->parent) : Json(nullptr);
  json["cgroup"] = info != nullptr ? text_or_null(info->cgroup) : Json(nullptr);
  json["container"] = info != nullptr ? text_or_null(info->container) : Json(nullptr);
  return json;
}

void put_metrics(Json& json, const Reading& reading) {
  Json unknown = Json::object();
  for (const MetricInfo& row : kMetricTable) {
    if (row.of != Of::gpu || reading.why_missing(row.metric) == Absence::not_asked) continue;
    json[row.field] = number(reading[row.metric]);
    if (const Absence why = reading.why_missing(row.metric); why != Absence::none) unknown[row.field] = words(why);
  }
  json["util_basis"] = basis(reading.util_basis);
  json["util_coverage"] = reading.util_basis == Basis::mean ? number(reading.util_coverage) : Json(nullptr);
  json["power_basis"] = basis(reading.power_basis);
  json["energy_joules"] = reading.energy_joules ? number(*reading.energy_joules) : Json(nullptr);
  json["mem_clock_mhz"] = reading.mem_clock_mhz ? number(*reading.mem_clock_mhz) : Json(nullptr);
  if (reading.throttle_reasons) {
    json["throttling"] = is_throttling(*reading.throttle_reasons);
    json["throttle_reasons"] = throttle_words(*reading.throttle_reasons);
  } else {
    json["throttling"] = nullptr;
    json["throttle_reasons"] = nullptr;
  }
  json["mig_mode"] = optional(reading.mig_mode);
  json["asleep"] = reading.asleep;
  json["display_active"] = optional(reading.display_active);
  json["memory_estimated"] = reading.memory_estimated;
  json["processes_hidden"] = reading.processes_hidden;
  json["unknown"] = std::move(unknown);
}

Json gpu(const StatusView& view, std::size_t row) {
  const Device& device = view.snapshot.inventory->devices[view.devices[row]];
  const Reading& reading = view.snapshot.readings[view.devices[row]];
  const bool mig = device.kind == DeviceKind::mig;
  Json json;
  json["index"] = device.index;
  json["kind"] = mig ? "mig" : "gpu";
  json["mig_index"] = mig ? Json(device.mig_index) : Json(nullptr);
  json["uuid"] = text_or_null(device.uuid);
  json["name"] = text_or_null(device.name);
  json["pci"] = text_or_null(device.pci);
  json["error"] = text_or_null(device_trouble(device, reading));
  put_metrics(json, reading);
  if (reading.tenants) {
    json["processes"] = Json::array();
    for (const Tenant& tenant : *reading.tenants) json["processes"].push_back(process(tenant, view.snapshot));
  } else {
    json["processes"] = nullptr;
  }
  const StatusExtra extra = row < view.extras.size() ? view.extras[row] : StatusExtra{};
  json["idle_seconds"] =
      extra.idle_for ? number(std::chrono::duration<double>(*extra.idle_for).count()) : Json(nullptr);
  if (extra.lease) {
    json["lease"] = {{"user", extra.lease->user},
                     {"pid", extra.lease->pid},
                     {"command", extra.lease->command},
                     {"since", extra.lease->since ? Json(format_rfc3339(*extra.lease->since)) : Json(nullptr)}};
  } else {
    json["lease"] = nullptr;
  }
  return json;
}

}  // namespace

std::string status_json(const StatusView& view, int indent) {
  Json json;
  json["time"] = format_rfc3339(view.snapshot.wall);
  json["driver_version"] = text_or_null(view.snapshot.inventory->driver_version);
  json["gpus"] = Json::array();
  for (std::size_t row = 0; row < view.devices.size(); ++row) json["gpus"].push_back(gpu(view, row));
  // A process may be called anything; bytes that are no UTF-8 must not cost the whole document.
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lull
