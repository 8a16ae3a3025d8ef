#pragma once
// The files by which the kernel shows AMD, Intel and Jetson GPUs, under the folder of
// a simulation:
//
//   sys/devices/…             all of them: values, hwmon, gpu_metrics, KFD, devfreq
//   sys/{class,bus,dev}/…     links into sys/devices, as the kernel has them
//   proc/PID/fdinfo/N         what a load's descriptor of a render node shows
//   dev/dri/…, dev/kfd        device files
//
// Where the machine has FUSE, sys/devices is a file system that makes each content as
// it is read (sim/files_server.h). Else they are plain files, written anew with every
// change and several times a second.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/evaluate.h"
#include "sim/writer.h"

namespace lull::sim {

// What a content is made from.
struct RenderInput {
  const Scene& scene;
  unsigned gpu;
  unsigned nth;  // of several files of a kind: which GT, which sensor

  const Gpu& card() const { return scene.state.gpus[gpu]; }
  double now(Metric metric) const { return value(scene, gpu, metric, scene.now_ns); }
};
// Nothing: this card cannot tell now.
using Render = std::optional<std::string> (*)(const RenderInput& in);

// A file, link or folder that is there for as long as the simulation is.
struct FileEntry {
  enum class Kind : std::uint8_t { file, link, folder };
  std::string path;  // below sys
  std::string text;  // content, or where a link leads
  Kind kind = Kind::file;
  Render render = nullptr;  // makes the content; null: `text` is it
  unsigned gpu = kNone;     // whose it is
  unsigned nth = 0;
};

// Of a process: comes and goes with it. Below sys (KFD), or below proc (fdinfo).
struct ProcessFile {
  std::string path;
  std::string text;
  unsigned gpu = kNone;
};

inline constexpr std::string_view kKfdProcesses = "devices/virtual/kfd/kfd/proc";

std::vector<FileEntry> file_entries(const State& state);
std::vector<ProcessFile> kfd_files(const Scene& scene);     // paths below sys
std::vector<ProcessFile> fdinfo_files(const Scene& scene);  // "4711/fdinfo/5"

bool has_file_gpus(const State& state);

// What goes wrong with a file of a card now.
struct FileTrouble {
  int error = 0;  // errno
  bool empty = false;
  bool garbage = false;
  bool dstate = false;
  std::int64_t hang_ns = 0;
};
FileTrouble file_trouble(const Scene& scene, unsigned gpu, std::string_view path);

struct FileContent {
  int error = 0;  // errno; a plain file is empty then
  std::string text;
};
FileContent content_of(const FileEntry& entry, const Scene& scene);

// What a process opens to use this card: its render node, and AMD's KFD.
std::vector<std::string> device_files(const std::string& folder, const Gpu& card);

// Makes all of it as plain files, and the device files; after create_state() in the same folder.
Result<> furnish_files(const std::string& folder);

// Brings plain files up to date; where a server makes them, only the links to fdinfo. With the lock of writers held.
void refresh_files(const std::string& folder, const Scene& scene);

// ---- the parts, by vendor ----------------------------------------------------------------------

// Collects entries; paths are below sys.
class FileList {
 public:
  explicit FileList(const State& state) : state_(state) {}

  const State& state() const { return state_; }
  void gpu(unsigned index) { gpu_ = index; }
  const Gpu& card() const { return state_.gpus[gpu_]; }

  void text(const std::string& path, std::string_view content);  // with a newline after it
  void folder(const std::string& path);
  void bytes(const std::string& path, std::string content);
  void live(const std::string& path, Render render, unsigned nth = 0);
  void link(const std::string& path, const std::string& to);            // both below sys
  std::string hwmon(const std::string& device, std::string_view name);  // its folder
  // The nodes of a card: cardN and, but for a connector, renderDN.
  std::string drm(const std::string& device, unsigned card);
  // The folder of a PCI device, and what every such has.
  std::string pci(std::string_view driver, std::uint32_t vendor, std::uint32_t device_class);

  std::vector<FileEntry> take() { return std::move(entries_); }

 private:
  bool hidden(std::string_view path) const;

  const State& state_;
  std::vector<FileEntry> entries_;
  unsigned gpu_ = kNone;
  unsigned hwmons_ = 0;
};

void add_amd(FileList& list);
void add_intel(FileList& list);
void add_tegra(FileList& list);
void add_kfd(FileList& list);  // of the whole machine

std::string amd_fdinfo(const Scene& scene, const Load& load);
std::string intel_fdinfo(const Scene& scene, const Load& load);

// Common contents.
std::optional<std::string> whole_text(double value,
                                      double factor = 1);         // with a newline; nothing of what is not finite
std::optional<std::string> render_power(const RenderInput& in);   // µW
std::optional<std::string> render_limit(const RenderInput& in);   // µW
std::optional<std::string> render_temp(const RenderInput& in);    // m°C, `nth` degrees more
std::optional<std::string> render_energy(const RenderInput& in);  // µJ
std::optional<std::string> render_runtime_status(const RenderInput& in);
std::optional<std::string> render_fan(const RenderInput& in);  // rpm
// Seconds of real time that the load has kept its GPU busy.
double busy_seconds(const Scene& scene, const Load& load);
// Percent x seconds of real time since the start that the card was busy.
double busy_sum(const Scene& scene, unsigned gpu);
double real_seconds(const Scene& scene);  // since the start

}  // namespace lull::sim
