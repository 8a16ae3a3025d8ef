#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "base/text.h"

namespace lull {
namespace {

class Exposition {
 public:
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    head_ = fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  // What is unknown is left out; a family without samples is as well.
  void sample(std::string_view labels, double value, std::string_view suffix = "") {
    if (std::isnan(value)) return;
    text_ += std::exchange(head_, {});
    if (labels.empty())
      fmt::format_to(std::back_inserter(text_), "{}{} {}\n", name_, suffix, value);
    else
      fmt::format_to(std::back_inserter(text_), "{}{}{{{}}} {}\n", name_, suffix, labels, value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  std::string name_;
  std::string head_;
};

using Value = double (*)(const ObservedGpu& gpu);
struct Family {
  std::string_view name;
  std::string_view type;
  std::string_view help;
  Value value;
};

double scaled(double value, double factor) { return value * factor; }  // unknown stays so

// Zero where it is seen at work; unknown where neither is known.
double idle_seconds(const ObservedGpu& gpu) {
  if (gpu.extra.idle_for) return in_seconds(*gpu.extra.idle_for);
  return std::isnan(gpu.reading[Metric::util]) ? kUnknown : 0;
}

constexpr Family kFamilies[] = {
    {"lull_gpu_up", "gauge", "Whether the GPU could be read.",
     [](const ObservedGpu& gpu) { return gpu.reading.device_absence == Absence::none ? 1.0 : 0.0; }},
    {"lull_gpu_utilization_ratio", "gauge", "Share of time a kernel ran since the previous sample.",
     [](const ObservedGpu& gpu) { return scaled(gpu.reading[Metric::util], 0.01); }},
    {"lull_gpu_memory_activity_ratio", "gauge", "Share of time device memory was read or written.",
     [](const ObservedGpu& gpu) { return scaled(gpu.reading[Metric::mem_util], 0.01); }},
    {"lull_gpu_busy_seconds_total", "counter", "Time in which a kernel ran, of the time that was seen.",
     [](const ObservedGpu& gpu) { return gpu.time.seen > 0 ? gpu.time.busy : kUnknown; }},
    {"lull_gpu_seen_seconds_total", "counter", "Time whose utilization is known.",
     [](const ObservedGpu& gpu) { return gpu.time.seen > 0 ? gpu.time.seen : kUnknown; }},
    {"lull_gpu_energy_joules_total", "counter", "Energy used, by the counter of the GPU.",
     [](const ObservedGpu& gpu) { return gpu.reading.energy_joules.value_or(kUnknown); }},
    {"lull_gpu_power_watts", "gauge", "Mean power since the previous sample.",
     [](const ObservedGpu& gpu) { return gpu.reading[Metric::power]; }},
    {"lull_gpu_power_limit_watts", "gauge", "Enforced power limit.",
     [](const ObservedGpu& gpu) { return gpu.reading[Metric::power_limit]; }},
    {"lull_gpu_memory_used_bytes", "gauge", "Memory in use.",
     [](const ObservedGpu& gpu) { return gpu.reading[Metric::mem_used]; }},
    {"lull_gpu_memory_total_bytes", "gauge", "Memory in all.",
     [](const ObservedGpu& gpu) { return gpu.reading[Metric::mem_total]; }},
    {"lull_gpu_temperature_celsius", "gauge", "Temperature of the chip.",
     [](const ObservedGpu& gpu) { return gpu.reading[Metric::temp]; }},
    {"lull_gpu_clock_hertz", "gauge", "Clock of the multiprocessors.",
     [](const ObservedGpu& gpu) { return scaled(gpu.reading[Metric::clock], 1e6); }},
    {"lull_gpu_processes", "gauge", "Processes with a compute context.",
     [](const ObservedGpu& gpu) { return gpu.reading[Metric::procs]; }},
    {"lull_gpu_effort_ratio", "gauge", "Power for this utilization, relative to what this card usually draws for it.",
     [](const ObservedGpu& gpu) { return scaled(gpu.reading[Metric::effort], 0.01); }},
    {"lull_gpu_learned_seconds", "gauge", "Time at work from which lull_gpu_effort_ratio was learned.",
     [](const ObservedGpu& gpu) { return gpu.reading[Metric::learned]; }},
    {"lull_gpu_idle_power_watts", "gauge", "Lowest mean power seen of this card while idle.",
     [](const ObservedGpu& gpu) { return gpu.reading[Metric::idle_power]; }},
    {"lull_gpu_idle_seconds", "gauge", "How long the GPU has been seen idle without a break; 0 where it works.",
     idle_seconds},
    {"lull_gpu_leases", "gauge", "Leases of the GPU.",
     [](const ObservedGpu& gpu) {
       return gpu.extra.lease_unknown ? kUnknown : static_cast<double>(gpu.extra.leases.size());
     }},
};

constexpr double kMebibyte = 1 << 20;
constexpr Family kDcgmFamilies[] = {
    {"DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).",
     [](const ObservedGpu& gpu) { return gpu.reading[Metric::util]; }},
    {"DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %).",
     [](const ObservedGpu& gpu) { return gpu.reading[Metric::mem_util]; }},
    {"DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).",
     [](const ObservedGpu& gpu) { return scaled(gpu.reading[Metric::mem_used], 1 / kMebibyte); }},
    {"DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).",
     [](const ObservedGpu& gpu) { return scaled(gpu.reading[Metric::mem_free], 1 / kMebibyte); }},
    {"DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).",
     [](const ObservedGpu& gpu) { return gpu.reading[Metric::power]; }},
    {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Total energy consumption since boot (in mJ).",
     [](const ObservedGpu& gpu) { return scaled(gpu.reading.energy_joules.value_or(kUnknown), 1000); }},
    {"DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).",
     [](const ObservedGpu& gpu) { return gpu.reading[Metric::temp]; }},
    {"DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).",
     [](const ObservedGpu& gpu) { return gpu.reading[Metric::clock]; }},
};

std::string labels_of(const Device& device) {
  return fmt::format(R"(gpu="{}",uuid="{}")", device.label(), label_value(device.uuid));
}

std::string dcgm_labels_of(const Device& device, const MetricsOptions& options) {
  const std::string node = device.render_minor ? fmt::format("renderD{}", *device.render_minor)
                                               : fmt::format("nvidia{}", device.minor.value_or(device.index));
  return fmt::format(R"(gpu="{}",UUID="{}",pci_bus_id="{}",device="{}",modelName="{}",Hostname="{}")", device.label(),
                     label_value(device.uuid), label_value(device.pci), node, label_value(device.name),
                     label_value(options.host));
}

void put_jobs(Exposition& out, const Observer& observer) {
  const std::vector<Device>& devices = observer.snapshot().inventory->devices;
  std::set<std::string> rows;  // several trees of one user look the same
  for (const JobUse& job : observer.jobs())
    for (const std::size_t gpu : job.gpus)
      for (const std::string& user : job.users)
        rows.insert(fmt::format(R"({},job_id="{}",user="{}")", labels_of(devices[gpu]),
                                job.has_lasting_id() ? label_value(job.id) : "", label_value(user)));
  out.family("lull_gpu_job_info", "gauge",
             "Who uses the GPU: proven processes only; no job_id for a plain process tree.");
  for (const std::string& row : rows) out.sample(row, 1);
  out.family("lull_job_idle_seconds", "gauge", "How long all GPUs of the job have been seen idle; 0 where one works.");
  for (const JobUse& job : observer.jobs()) {
    if (!job.has_lasting_id()) continue;
    const bool known = std::ranges::none_of(
        job.gpus, [&](std::size_t gpu) { return std::isnan(observer.snapshot().readings[gpu][Metric::util]); });
    out.sample(fmt::format(R"(job_id="{}",user="{}")", label_value(job.id), label_value(job.users.front())),
               job.idle_for ? in_seconds(*job.idle_for)
               : known      ? 0
                            : kUnknown);
  }
}

void put_sampling(Exposition& out, const Observer& observer) {
  out.family("lull_samples_total", "counter", "Samples taken.");
  out.sample("", static_cast<double>(observer.samples()));
  out.family("lull_sample_duration_seconds", "gauge", "How long the newest sample took.");
  out.sample("", in_seconds(observer.snapshot().took));
  const Delays& delays = observer.delays();
  out.family("lull_sample_delay_seconds", "histogram", "How late samples were asked for.");
  for (std::size_t i = 0; i < Delays::kBounds.size(); ++i)
    out.sample(fmt::format(R"(le="{}")", Delays::kBounds[i]), static_cast<double>(delays.at_most[i]), "_bucket");
  out.sample(R"(le="+Inf")", static_cast<double>(delays.count), "_bucket");
  out.sample("", delays.sum, "_sum");
  out.sample("", static_cast<double>(delays.count), "_count");
}

}  // namespace

std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

std::string metrics_text(const Observer& observer, Instant now, const MetricsOptions& options) {
  Exposition out;
  out.family("lull_up", "gauge", "Whether the GPUs are being read: 0 where there is no driver or no sample in time.");
  const bool up = observer.is_up(now);
  out.sample("", up ? 1 : 0);
  if (!up) return out.take();
  out.family("lull_build_info", "gauge", "The version of lull.");
  out.sample(fmt::format(R"(version="{}")", label_value(options.version)), 1);
  put_sampling(out, observer);
  const std::vector<ObservedGpu> gpus = observer.gpus();
  out.family("lull_gpu_info", "gauge", "The GPUs of this machine.");
  std::vector<std::string> labels;
  for (const ObservedGpu& gpu : gpus) {
    labels.push_back(labels_of(gpu.device));
    out.sample(fmt::format(R"({},name="{}",vendor="{}",pci="{}",kind="{}",driver_version="{}")", labels.back(),
                           label_value(gpu.device.name), to_string(gpu.device.vendor), label_value(gpu.device.pci),
                           gpu.device.kind == DeviceKind::mig ? "mig" : "gpu",
                           label_value(observer.snapshot().inventory->driver_version)),
               1);
  }
  for (const Family& family : kFamilies) {
    out.family(family.name, family.type, family.help);
    for (std::size_t i = 0; i < gpus.size(); ++i) out.sample(labels[i], family.value(gpus[i]));
  }
  put_jobs(out, observer);
  if (!options.dcgm_names) return out.take();
  for (std::size_t i = 0; i < gpus.size(); ++i) labels[i] = dcgm_labels_of(gpus[i].device, options);
  for (const Family& family : kDcgmFamilies) {
    out.family(family.name, family.type, family.help);
    for (std::size_t i = 0; i < gpus.size(); ++i) out.sample(labels[i], family.value(gpus[i]));
  }
  return out.take();
}

}  // namespace lull
