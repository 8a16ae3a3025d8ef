#include "sense/learned_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/fd.h"
#include "base/text.h"

namespace lull {
namespace {

constexpr std::size_t kLargest = 64U << 10;
constexpr std::string_view kFirstLine = "lull-learned 1";
constexpr std::uint32_t kMostStride = 1U << 30;

std::string variable(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? "" : value;
}

// A UUID that may be the name of a file.
bool is_name(const std::string& uuid) {
  constexpr std::size_t kLongest = 100;
  return !uuid.empty() && uuid.size() <= kLongest && uuid.front() != '-' && std::ranges::all_of(uuid, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
  });
}

// Why another user may have written this, or replaced it; empty: none can.
std::string doubt(const struct stat& status, uid_t user) {
  if (status.st_uid != user && status.st_uid != 0) return fmt::format("belongs to uid {}", status.st_uid);
  const bool sticky = S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0;
  if ((status.st_mode & S_IWOTH) != 0 && !sticky) return "can be written by everybody";
  const bool private_group = status.st_gid == 0 || (user != 0 && status.st_gid == user);
  if ((status.st_mode & S_IWGRP) != 0 && !sticky && !private_group) return "can be written by its group";
  return "";
}

void make_folders(const std::string& path) {
  for (std::size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1))
    (void)::mkdir(path.substr(0, end).c_str(), 0755);
  (void)::mkdir(path.c_str(), 0700);
}

// "NAME VALUE"
std::optional<double> number_after(std::string_view line, std::string_view name) {
  if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ' ') return std::nullopt;
  const auto number = to_double(line.substr(name.size() + 1));
  return number && std::isfinite(*number) ? number : std::nullopt;
}

constexpr Duration kKeepEvery = std::chrono::minutes(10);

}  // namespace

std::string learned_folder(uid_t user) {
  if (const char* set = ::secure_getenv("LULL_LEARNED"); set != nullptr) return *set == '/' ? set : "";
  if (const std::string sim = variable("LULL_SIM"); sim.starts_with('/')) return sim + "/learned";
  if (user == 0) return "/var/lib/lull/learned";
  constexpr std::string_view kBelow = "/lull/learned";
  if (const std::string state = variable("XDG_STATE_HOME"); state.starts_with('/')) return state + std::string(kBelow);
  const std::string home = variable("HOME");
  return home.starts_with('/') ? home + "/.local/state" + std::string(kBelow) : "";
}

std::string learned_text(const std::string& uuid, const PowerLearner::Learned& learned) {
  std::string text = fmt::format("{}\nuuid {}\n", kFirstLine, uuid);
  if (!std::isnan(learned.idle_watts)) text += fmt::format("idle_watts {:.9g}\n", learned.idle_watts);
  if (!std::isnan(learned.limit_watts)) text += fmt::format("limit_watts {:.9g}\n", learned.limit_watts);
  text += fmt::format("seconds {:.9g}\nstride {}\n", learned.seconds, learned.stride);
  for (const PowerLearner::Window& window : learned.windows)
    text += fmt::format("window {:.9g} {:.9g}\n", window.util, window.watts);
  return text + "end\n";
}

Result<PowerLearner::Learned> parse_learned(std::string_view text, const std::string& uuid) {
  const auto wrong = [](std::size_t line) { return fail(fmt::format("line {} makes no sense", line)); };
  PowerLearner::Learned learned;
  learned.stride = 0;
  bool seconds = false;
  std::size_t line_number = 0;
  while (!text.empty()) {
    ++line_number;
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return wrong(line_number);  // cut off
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line_number == 1) {
      if (line != kFirstLine) return wrong(1);
    } else if (line_number == 2) {
      if (line != "uuid " + uuid) return fail("it is of another GPU");
    } else if (line == "end") {
      const bool whole =
          text.empty() && seconds && learned.stride > 0 && learned.windows.empty() == (learned.seconds <= 0);
      if (!whole) return wrong(line_number);
      return learned;
    } else if (const auto idle = number_after(line, "idle_watts"); idle && std::isnan(learned.idle_watts)) {
      if (!plausible(Metric::power, *idle)) return wrong(line_number);
      learned.idle_watts = *idle;
    } else if (const auto limit = number_after(line, "limit_watts"); limit && std::isnan(learned.limit_watts)) {
      if (!plausible(Metric::power_limit, *limit)) return wrong(line_number);
      learned.limit_watts = *limit;
    } else if (const auto time = number_after(line, "seconds"); time && !std::exchange(seconds, true)) {
      if (!plausible(Metric::learned, *time)) return wrong(line_number);
      learned.seconds = *time;
    } else if (const auto stride = number_after(line, "stride"); stride && learned.stride == 0) {
      if (!(*stride >= 1 && *stride <= kMostStride) || *stride != std::floor(*stride)) return wrong(line_number);
      learned.stride = static_cast<std::uint32_t>(*stride);
    } else if (line.starts_with("window ")) {
      const std::size_t blank = line.find(' ', 7);
      if (blank == std::string_view::npos) return wrong(line_number);
      const auto util = to_double(line.substr(7, blank - 7));
      const auto watts = to_double(line.substr(blank + 1));
      if (!util || !watts || !(*util >= PowerLearner::kLeastUtil) || !plausible(Metric::util, *util) ||
          !plausible(Metric::power, *watts) || learned.windows.size() >= PowerLearner::kMostWindows)
        return wrong(line_number);
      learned.windows.push_back({static_cast<float>(*util), static_cast<float>(*watts)});
    } else {
      return wrong(line_number);
    }
  }
  return fail("it ends too early");
}

// Every folder on the way is looked at: who can rename one of them can put another in its place.
Result<Fd> LearnedStore::open_folder() const {
  std::array<char, PATH_MAX> real{};
  if (::realpath(folder_.c_str(), real.data()) == nullptr) return fail(errno, printable(folder_));
  const std::string path(real.data());
  for (std::size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    const std::string part = path.substr(0, end);
    struct stat status{};
    if (::lstat(part.c_str(), &status) != 0) return fail(errno, printable(part));
    if (const std::string why = doubt(status, user_); !why.empty())
      return fail(fmt::format("{} {}", printable(part), why));
  }
  return open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

Result<std::optional<PowerLearner::Learned>> LearnedStore::load(const std::string& uuid) const {
  if (folder_.empty() || !is_name(uuid)) return std::nullopt;
  const auto ignored = [&](std::string_view why) {
    return fail(fmt::format("{}/{} is ignored: {}", printable(folder_), uuid, why));
  };
  struct stat status{};
  if (::lstat((folder_ + "/" + uuid).c_str(), &status) != 0) return std::nullopt;  // of this card nothing is kept
  const auto folder = open_folder();
  if (!folder) return ignored(folder.error().message());
  // Without opening it first: what stands there may wait for a writer, or do something when opened.
  const auto handle = open_at(folder->get(), uuid, O_PATH | O_NOFOLLOW);
  if (!handle) return ignored(handle.error().message());
  if (::fstat(handle->get(), &status) != 0) return ignored("it cannot be looked at");
  if (!S_ISREG(status.st_mode)) return ignored("it is not a regular file");
  if (status.st_nlink != 1) return ignored("it has another name, too");
  if (status.st_uid != user_) return ignored(fmt::format("it belongs to uid {}", status.st_uid));
  if (const std::string why = doubt(status, user_); !why.empty()) return ignored("it " + why);
  if (status.st_size == 0) return std::nullopt;  // the machine stopped before it was written
  if (status.st_size > static_cast<off_t>(kLargest)) return ignored("it is too large");
  const auto text = read_file(AT_FDCWD, fmt::format("/proc/self/fd/{}", handle->get()), kLargest);
  if (!text) return ignored(text.error().message());
  auto learned = parse_learned(*text, uuid);
  if (!learned) return ignored(learned.error().message());
  return *std::move(learned);
}

Result<> LearnedStore::save(const std::string& uuid, const PowerLearner::Learned& learned) const {
  if (folder_.empty() || !is_name(uuid)) return {};
  const auto before = load(uuid);
  if (before && *before && (*before)->seconds > learned.seconds &&
      !(std::abs((*before)->limit_watts - learned.limit_watts) > PowerLearner::kOtherLimit * (*before)->limit_watts))
    return {};
  make_folders(folder_);
  const Fd folder = TRY(open_folder());
  const std::string draft = fmt::format(".{}.{}", uuid, ::getpid());
  (void)::unlinkat(folder.get(), draft.c_str(), 0);
  Result<> written;
  {
    const Fd file = TRY(open_at(folder.get(), draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
    written = write_all(file.get(), learned_text(uuid, learned));
  }
  if (written && ::renameat(folder.get(), draft.c_str(), folder.get(), uuid.c_str()) != 0)
    written = fail(errno, printable(folder_));
  if (!written) (void)::unlinkat(folder.get(), draft.c_str(), 0);
  return written;
}

// ---- the learners of a sampler

CardLearners::CardLearners(LearnedStore store, bool keeps)
    : store_(std::move(store)), keeps_(keeps), owner_(::getpid()) {}

CardLearners::~CardLearners() { (void)keep(); }

std::vector<std::string> CardLearners::meet(const Inventory& inventory) {
  std::vector<std::string> lines;
  places_.clear();
  for (const Device& device : inventory.devices) {
    const auto [found, fresh] = cards_.try_emplace(device.id());
    Card& card = found->second;
    places_.push_back(&card);
    if (!fresh || !device.has_own_uuid()) continue;
    card.uuid = device.uuid;
    auto kept = store_.load(device.uuid);
    if (!kept) {
      lines.push_back(kept.error().message());
      continue;
    }
    if (!*kept) continue;
    card.learner = PowerLearner(**std::move(kept));
    card.kept_seconds = card.learner.learned().seconds;
    card.kept_idle = card.learner.idle_watts();
  }
  return lines;
}

void CardLearners::learn(Snapshot& snapshot) {
  const auto& devices = snapshot.inventory->devices;
  for (std::size_t i = 0; i < std::min({places_.size(), devices.size(), snapshot.readings.size()}); ++i)
    lull::learn(places_[i]->learner, devices[i], snapshot.at, snapshot.readings[i]);
}

std::string CardLearners::keep_now_and_then(Instant now) {
  if (!std::exchange(begun_, true)) kept_at_ = now;
  if (now - kept_at_ < kKeepEvery) return {};
  kept_at_ = now;
  return keep();
}

std::string CardLearners::keep() {
  if (!keeps_ || ::getpid() != owner_) return {};
  std::string why;
  for (auto& [id, card] : cards_) {
    const PowerLearner::Learned& learned = card.learner.learned();
    const bool same_idle = learned.idle_watts == card.kept_idle || std::isnan(learned.idle_watts);
    if (card.uuid.empty() || (learned.seconds == card.kept_seconds && same_idle)) continue;
    card.kept_seconds = learned.seconds;
    card.kept_idle = learned.idle_watts;
    if (const auto saved = store_.save(card.uuid, learned); !saved && !std::exchange(failed_, true))
      why = "what is learned of the GPUs cannot be kept: " + saved.error().message();
  }
  return why;
}

}  // namespace lull
