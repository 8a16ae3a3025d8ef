#pragma once
// For tests: a folder of its own, gone at the end, filled from a text fixture
// (see tests/fixtures/proc) or by hand.

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/fd.h"
#include "base/text.h"
#include "tests/places.h"

namespace lull {

// Readers of this file hang until it is destroyed; then they read the end of an empty file.
class HangingFile {
 public:
  explicit HangingFile(std::string path) : path_(std::move(path)) {
    std::filesystem::remove(path_);
    if (::mkfifo(path_.c_str(), 0600) != 0) std::abort();
    pipe_ = Fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC));  // somebody could still write, so there is no end yet
  }
  HangingFile(const HangingFile&) = delete;
  HangingFile& operator=(const HangingFile&) = delete;
  ~HangingFile() {
    std::filesystem::remove(path_);  // before those who wait come back: nobody finds it again
    pipe_.reset();
  }

 private:
  std::string path_;
  Fd pipe_;
};

class TestTree {
 public:
  TestTree() {
    std::string name = (std::filesystem::temp_directory_path() / "lull-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  TestTree(const TestTree&) = delete;
  TestTree& operator=(const TestTree&) = delete;
  ~TestTree() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  Root root() const {
    Root root;
    root.proc = at("proc");
    root.dev = at("dev");
    root.sys = at("sys");
    return root;
  }

  void write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path file = at(name);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
  }

  void link(const std::string& name, const std::string& target) const {
    const std::filesystem::path file = at(name);
    std::filesystem::create_directories(file.parent_path());
    std::filesystem::create_symlink(target, file);
  }

  // Unpacks tests/fixtures/`fixture` below `folder`.
  void unpack(const std::string& fixture, const std::string& folder) const {
    const auto text = read_file(source_dir() + "/tests/fixtures/" + fixture);
    if (!text) std::abort();
    std::string name;
    std::string content;
    std::string last;
    const auto flush = [&] {
      if (!name.empty()) write(folder + "/" + name, content);
      content.clear();
    };
    for (const std::string_view line : split(*text, '\n')) {
      if (line.starts_with("#")) continue;
      if (line.starts_with("== ")) {
        flush();
        name = line.substr(3);
      } else if (const auto times = line.starts_with("*") ? to_unsigned(line.substr(1)) : std::nullopt) {
        for (std::uint64_t i = 1; i < *times; ++i) content += last;
      } else {
        content += last = unescape(line);
      }
    }
    flush();
  }

 private:
  [[maybe_unused]] static std::string unescape(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out += text[i];
        continue;
      }
      switch (text[++i]) {
        case '0': out += '\0'; break;
        case 'n': out += '\n'; break;
        case 't': out += '\t'; break;
        case 'x':
          out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
          i += 2;
          break;
        default: out += text[i];
      }
    }
    return out;
  }

  std::string path_;
};

}  // namespace lull
