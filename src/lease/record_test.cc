#include "lease/record.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <unistd.h>

#include "base/process.h"
#include "lease/folder_test.h"

namespace lull {
namespace {

TEST(LeaseRecordText, ComesBack) {
  EXPECT_TRUE(rc::check([] {
    const auto word = rc::gen::container<std::string>(rc::gen::inRange('!', '~'));
    LeaseRecord record;
    record.gpu = "GPU-" + *rc::gen::nonEmpty(word);
    record.label = *word;
    record.id = *word;
    record.kind = *rc::gen::element(LeaseKind::job, LeaseKind::hold, LeaseKind::process, LeaseKind::collecting);
    record.user = *word;
    record.command = *word;
    record.holder = {*rc::gen::inRange(1, 4000000), *rc::gen::inRange<std::uint64_t>(1, 1U << 30), 4026531836};
    record.since = WallTime(std::chrono::seconds(*rc::gen::inRange(0, 2000000000)));
    RC_ASSERT(read_lease(write_record(record)) == record);
    TicketRecord ticket;
    ticket.number = *rc::gen::inRange<std::uint64_t>(1, 1U << 30);
    ticket.priority = *rc::gen::inRange(-100, 100);
    ticket.count = *rc::gen::inRange(1U, 16U);
    ticket.missing = *rc::gen::inRange(0U, 16U);
    ticket.wants = *rc::gen::container<std::vector<std::string>>(rc::gen::nonEmpty(word));
    ticket.command = *word;
    RC_ASSERT(read_ticket(write_record(ticket)) == ticket);
  }));
}

TEST(LeaseRecordText, HostileWordsStayOnTheirLine) {
  LeaseRecord record;
  record.gpu = "GPU-1";
  record.command = "evil\nuser: root\n\x1b[2J";
  record.user = "ada";
  const std::string text = write_record(record);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(read_lease(text)->user, "ada");
  EXPECT_FALSE(read_lease(text.substr(0, text.size() - 1)));  // half of a file
  EXPECT_FALSE(read_lease("\0\1\2"));
  EXPECT_FALSE(read_ticket("number: x\n"));
}

TEST(LeaseRecordText, AProcessIsToldFromALaterOne) {
  ProcessMark self = ProcessMark::of(0);
  EXPECT_EQ(alive(self), true);
  ++self.start_ticks;
  EXPECT_EQ(alive(self), false);
  self.pid_namespace = 1;
  EXPECT_EQ(alive(self), std::nullopt);
}

TEST(LeaseRecordText, AWordOfANameHasLettersDigitsAndDashes) {
  for (const char* word : {"a", "z", "A", "Z", "0", "9", "-", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"})
    EXPECT_TRUE(plain_word(word)) << word;
  for (const char* word : {"`", "{", "@", "[", "/", ":", ",", ".", "_", " ", "a.b", "../a", "a/b", "\xc3\xa4"})
    EXPECT_FALSE(plain_word(word)) << word;
  EXPECT_TRUE(plain_word(std::string(128, 'a')));
  EXPECT_FALSE(plain_word(std::string(129, 'a')));
  EXPECT_FALSE(plain_word(""));
}

TEST(LeaseNames, OfGpusWithoutAUuid) {
  Device device;
  device.pci = "00000000:03:00.0";
  EXPECT_EQ(lease_name(device), "") << "a GPU that has not said who it is";
  device.vendor = Vendor::intel;
  device.without_uuid = true;
  EXPECT_EQ(lease_name(device), "PCI-00000000-03-00-0");
  EXPECT_TRUE(is_leased_as(device, "PCI-00000000-03-00-0"));
  device.vendor = Vendor::amd;
  device.without_uuid = false;
  EXPECT_EQ(lease_name(device), "") << "one that could not be read";
  device.uuid = "GPU-5d1f000000000065";
  EXPECT_EQ(lease_name(device), "GPU-5d1f000000000065");
  device.uuid.clear();
  device.without_uuid = true;
  device.kind = DeviceKind::mig;
  device.mig_index = 3;
  EXPECT_EQ(lease_name(device), "PCI-00000000-03-00-0-3") << "a partition";
}

}  // namespace
}  // namespace lull
