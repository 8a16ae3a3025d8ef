#pragma once
// For tests of the lease folder: one of their own, and a result that must be there.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "lease/folder.h"

namespace lull {

class Lease : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "lull-lease-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    place_ = {root_ + "/leases", false};
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  LeaseFolder folder() {
    auto opened = LeaseFolder::open(place_);
    EXPECT_TRUE(opened) << opened.error().message();
    return *std::move(opened);
  }
  static LeaseRecord record(const std::string& uuid) {
    LeaseRecord record;
    record.gpu = uuid;
    record.id = "0123456789abcdef";
    record.user = "ada";
    record.command = "python train.py";
    return record;
  }
  static TicketRecord ticket_for(unsigned count) {
    TicketRecord record;
    record.number = 1;
    record.count = count;
    record.missing = 1;
    return record;
  }
  std::string squatted(const std::string& uuid) { return place_.path + "/" + uuid + "." + std::to_string(::geteuid()); }
  std::set<std::string> files() {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(place_.path)) names.insert(entry.path().filename());
    return names;
  }

  std::string root_;
  LeasePlace place_;
};

template <class T>
T must(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.error().message();
    throw std::runtime_error(result.error().message());
  }
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

}  // namespace lull
