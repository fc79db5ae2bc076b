#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>
#include <vector>

namespace jige {
namespace {

namespace fs = std::filesystem;

// A folder of its own for every test, removed at the end.
class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = temporary_pattern(testing::TempDir() + "jige-file-");
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.insert(entry.path().filename());
    return found;
  }

  std::string folder_;
};

TEST_F(FileTest, ReadsBackWhatWasWritten) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{65536}, size_t{200001}}) {
    std::string content(size, 'x');
    for (size_t i = 0; i < size; i += 97) content[i] = static_cast<char>(i);
    ASSERT_TRUE(write_file_atomic(path("a"), content).has_value());
    EXPECT_EQ(read_file(path("a")).value(), content);
  }
  EXPECT_EQ(names(), std::set<std::string>{"a"});
}

TEST_F(FileTest, ReadFailsByName) {
  const auto missing = read_file(path("none"));
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_NE(missing.error().message.find(path("none")), std::string::npos);
  EXPECT_EQ(read_file(path("none/below")).error().code, Code::kNotFound);
  const auto folder = read_file(folder_);
  ASSERT_FALSE(folder.has_value());
  EXPECT_EQ(folder.error().code, Code::kInvalidArgument);
  EXPECT_EQ(folder.error().message, folder_ + ": is a folder; name a file");
}

TEST_F(FileTest, ReadStopsAtItsLimit) {
  ASSERT_TRUE(write_file_atomic(path("a"), "12345").has_value());
  EXPECT_EQ(read_file(path("a"), 5).value(), "12345");
  EXPECT_EQ(read_file(path("a"), 4).error().code, Code::kExhausted);
  // A file whose size says more than there is memory for is refused before it is read.
  ASSERT_EQ(truncate(path("a").c_str(), off_t{1} << 40), 0);
  EXPECT_EQ(read_file(path("a")).error().code, Code::kExhausted);
}

TEST_F(FileTest, ReadTakesAPipeUpToTheLimit) {
  for (const size_t size_max : {size_t{1000}, size_t{3}}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(write(ends[1], "hello", 5), 5);
    close(ends[1]);
    const auto content = read_file("/dev/fd/" + std::to_string(ends[0]), size_max);
    close(ends[0]);
    EXPECT_EQ(content.has_value(), size_max == 1000);
    EXPECT_EQ(content.value_or("hello"), "hello");
  }
}

TEST_F(FileTest, WithoutCommitNothingChanges) {
  ASSERT_TRUE(write_file_atomic(path("a"), "old").has_value());
  {
    auto file = AtomicFile::create(path("a"));
    ASSERT_TRUE(file.has_value());
    ASSERT_TRUE(file->write("new and longer", 14).has_value());
    EXPECT_EQ(names().size(), 2u);
    EXPECT_EQ(read_file(path("a")).value(), "old");
  }
  EXPECT_EQ(read_file(path("a")).value(), "old");
  EXPECT_EQ(names(), std::set<std::string>{"a"});
}

TEST_F(FileTest, AProcessThatDiesWhileWritingLeavesTheTargetAlone) {
  ASSERT_TRUE(write_file_atomic(path("a"), "old").has_value());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto file = AtomicFile::create(path("a"));
    if (file) (void)file->write("half", 4);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(read_file(path("a")).value(), "old");
  // What it leaves behind has the shape that cleaners look for.
  for (const std::string& name : names()) {
    EXPECT_TRUE(name == "a" || (name.starts_with("a.") && name.size() == 8)) << name;
  }
}

TEST_F(FileTest, AReaderSeesOneVersionOrTheNext) {
  const auto version = [](char letter) { return std::string(100000 + letter, letter); };
  ASSERT_TRUE(write_file_atomic(path("a"), version('a')).has_value());
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int round = 0; round < 40; ++round) {
      (void)write_file_atomic(path("a"), version(static_cast<char>('a' + round % 26)));
    }
    stop = true;
  });
  int reads = 0;
  while (!stop || reads < 5) {
    const auto content = read_file(path("a"));
    ASSERT_TRUE(content.has_value());
    ASSERT_EQ(*content, version(content->front()));
    ++reads;
  }
  writer.join();
}

TEST_F(FileTest, WritersOfOneTargetDoNotMix) {
  std::vector<std::thread> writers;
  for (char letter = 'a'; letter < 'e'; ++letter) {
    writers.emplace_back([this, letter] {
      for (int round = 0; round < 20; ++round) {
        EXPECT_TRUE(write_file_atomic(path("a"), std::string(50000, letter)).has_value());
      }
    });
  }
  for (auto& writer : writers) writer.join();
  const std::string content = read_file(path("a")).value();
  EXPECT_EQ(content, std::string(50000, content.front()));
  EXPECT_EQ(names(), std::set<std::string>{"a"});
}

TEST_F(FileTest, AFullDiskLeavesTheOldFileAndNoRemains) {
  ASSERT_TRUE(write_file_atomic(path("a"), "old").has_value());
  // A limit on file sizes stands in for a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 1000;
  setrlimit(RLIMIT_FSIZE, &small);
  const Status status = write_file_atomic(path("a"), std::string(100000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, Code::kExhausted);
  EXPECT_NE(status.error().message.find(path("a")), std::string::npos);
  EXPECT_EQ(read_file(path("a")).value(), "old");
  EXPECT_EQ(names(), std::set<std::string>{"a"});
}

TEST_F(FileTest, WriteAtChangesWhatIsThere) {
  auto file = AtomicFile::create(path("a"));
  ASSERT_TRUE(file.has_value());
  ASSERT_TRUE(file->write("........tail", 12).has_value());
  ASSERT_TRUE(file->write_at(0, "head", 4).has_value());
  ASSERT_TRUE(file->write("!", 1).has_value());  // still at the end
  ASSERT_TRUE(file->sync().has_value());
  ASSERT_TRUE(file->commit().has_value());
  EXPECT_EQ(read_file(path("a")).value(), "head....tail!");
}

TEST_F(FileTest, MovesKeepOneOwner) {
  {
    auto first = AtomicFile::create(path("a"));
    AtomicFile moved = std::move(*first);
    ASSERT_TRUE(moved.write("1", 1).has_value());
    auto second = AtomicFile::create(path("b"));
    moved = std::move(*second);  // the first is given up when `second` goes
    ASSERT_TRUE(moved.write("2", 1).has_value());
    ASSERT_TRUE(moved.commit().has_value());
  }
  EXPECT_EQ(names(), std::set<std::string>{"b"});
  EXPECT_EQ(read_file(path("b")).value(), "2");
}

TEST_F(FileTest, FollowsTheUmask) {
  const mode_t before = umask(027);
  const Status status = write_file_atomic(path("a"), "x");
  umask(before);
  ASSERT_TRUE(status.has_value());
  struct stat info {};
  ASSERT_EQ(stat(path("a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST_F(FileTest, KeepsThePermissionsOfWhatItReplaces) {
  ASSERT_TRUE(write_file_atomic(path("a"), "secret").has_value());
  for (const mode_t mode : {0600u, 0444u, 0664u}) {
    ASSERT_EQ(chmod(path("a").c_str(), mode), 0);
    ASSERT_TRUE(write_file_atomic(path("a"), "still secret").has_value());
    struct stat info {};
    ASSERT_EQ(stat(path("a").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, mode);
  }
}

TEST_F(FileTest, CreateFailsWhereThereIsNoFolder) {
  const Status nowhere = write_file_atomic(path("none/a"), "x");
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_EQ(nowhere.error().code, Code::kNotFound);
  EXPECT_EQ(nowhere.error().message, path("none/a") + ": there is no folder " + path("none") +
                                         " to write it to; make it first");
  const std::string long_name(5000, 'n');
  EXPECT_FALSE(write_file_atomic(path(long_name), "x").has_value());
}

TEST_F(FileTest, CommitFailsOverAFolderAndCleansUp) {
  auto file = AtomicFile::create(path("a"));
  ASSERT_TRUE(file.has_value());
  ASSERT_TRUE(make_folders(path("a/b")).has_value());
  EXPECT_FALSE(file->commit().has_value());
  *file = *AtomicFile::create(path("c"));
  EXPECT_EQ(names().count("a"), 1u);
  EXPECT_EQ(names().size(), 2u) << "a, and the other file's temporary";
}

TEST_F(FileTest, AFolderIsRefusedBeforeTheWork) {
  ASSERT_TRUE(make_folders(path("a/b")).has_value());
  const auto file = AtomicFile::create(path("a"));
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, Code::kInvalidArgument);
  EXPECT_EQ(names(), std::set<std::string>{"a"});
}

TEST_F(FileTest, WhatIsNoFileIsWrittenInPlace) {
  fs::create_symlink("/dev/null", path("null"));
  EXPECT_TRUE(write_file_atomic(path("null"), "gone").has_value());
  EXPECT_TRUE(fs::is_symlink(path("null")));
  EXPECT_TRUE(fs::is_character_file(path("null")));

  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = open(path("pipe").c_str(), O_RDWR);
  ASSERT_GE(reader, 0);
  EXPECT_TRUE(write_file_atomic(path("pipe"), "hello").has_value());
  char got[8] = {};
  EXPECT_EQ(read(reader, got, sizeof got), 5);
  EXPECT_STREQ(got, "hello");
  close(reader);
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_EQ(names(), (std::set<std::string>{"null", "pipe"}));
}

TEST_F(FileTest, AFileThatIsOpenIsWrittenBehindWhatIsThere) {
  const int fd = open(path("a").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(write(fd, "old ", 4), 4);
  for (const char* folder : {"/dev/fd/", "/proc/self/fd/"}) {
    EXPECT_TRUE(write_file_atomic(folder + std::to_string(fd), "new ").has_value());
    ASSERT_EQ(write(fd, "old ", 4), 4);  // behind it, not over it
  }
  close(fd);
  EXPECT_EQ(read_file(path("a")).value_or(""), "old new old new old ");
}

TEST_F(FileTest, ALinkInMemoryIsReplacedAsAnyOther) {
  const std::string link = "/dev/shm/jige-file-test-" + std::to_string(getpid());
  ASSERT_TRUE(write_file_atomic(path("a"), "old").has_value());
  if (symlink(path("a").c_str(), link.c_str()) != 0) GTEST_SKIP() << "no /dev/shm";
  const Status status = write_file_atomic(link, "new");
  const std::string content = read_file(link).value_or("");
  unlink(link.c_str());
  EXPECT_TRUE(status.has_value());
  EXPECT_EQ(content, "new");
  EXPECT_EQ(read_file(path("a")).value_or(""), "old");
}

TEST_F(FileTest, ASocketThatIsOpenIsWrittenTo) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Status status = write_file_atomic("/dev/fd/" + std::to_string(ends[0]), "hello");
  ASSERT_TRUE(status.has_value()) << status.error().message;
  char got[8] = {};
  EXPECT_EQ(read(ends[1], got, sizeof got), 5);
  EXPECT_STREQ(got, "hello");
  close(ends[0]);
  close(ends[1]);
}

TEST_F(FileTest, MakesFoldersWithTheirParents) {
  EXPECT_TRUE(make_folders(path("x/y/z")).has_value());
  EXPECT_TRUE(make_folders(path("x/y/z")).has_value());
  EXPECT_TRUE(fs::is_directory(path("x/y/z")));
  ASSERT_TRUE(write_file_atomic(path("file"), "x").has_value());
  const Status status = make_folders(path("file/below"));
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find("file/below"), std::string::npos);
  const Status file = make_folders(path("file"));
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, Code::kInvalidArgument);
  EXPECT_EQ(file.error().message, path("file") + ": is a file; name a folder");
}

TEST_F(FileTest, TakesADashForNoFile) {
  const auto dash = AtomicFile::create("-");
  ASSERT_FALSE(dash.has_value());
  EXPECT_EQ(dash.error().code, Code::kInvalidArgument);
  EXPECT_NE(dash.error().message.find("/dev/stdout is standard output"), std::string::npos);
}

TEST_F(FileTest, TellsWithoutMakingThemThatFoldersCannotBeMade) {
  EXPECT_TRUE(check_folders(path("x/y/z")).has_value());
  EXPECT_TRUE(check_folders(path("x/")).has_value());
  EXPECT_FALSE(fs::exists(path("x")));
  ASSERT_TRUE(write_file_atomic(path("file"), "x").has_value());
  for (const std::string name : {"file", "file/below", "file/below/it"}) {
    const Status checked = check_folders(path(name)), made = make_folders(path(name));
    ASSERT_FALSE(checked.has_value());
    EXPECT_EQ(checked.error().code, made.error().code);
    EXPECT_EQ(checked.error().message, made.error().message);
  }
  if (::geteuid() == 0) return;  // who may write anywhere
  fs::create_directory(path("shut"));
  fs::permissions(path("shut"), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(check_folders(path("shut")).error().code, Code::kIo);
  EXPECT_EQ(check_folders(path("shut/x")).error().code, Code::kIo);
}

// As cli/interrupt.cc installs it: without SA_RESTART, so that what waits returns.
TEST_F(FileTest, ASignalEndsWaitingForThePartnerOfAPipe) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGALRM, &action, &before), 0);
  // Again and again, for the first one may come before anything waits.
  const itimerval often = {.it_interval = {0, 10'000}, .it_value = {0, 10'000}}, never = {};
  setitimer(ITIMER_REAL, &often, nullptr);
  const auto opened = read_file(path("pipe"));
  const int writer = ::open(path("pipe").c_str(), O_RDWR);
  const auto read = read_file(path("pipe"));
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  ::close(writer);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, Code::kCancelled);
  EXPECT_EQ(opened.error().message, path("pipe") + ": waiting to open it");
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, Code::kCancelled);
}

TEST_F(FileTest, MapsAWholeFile) {
  ASSERT_TRUE(write_file_atomic(path("a"), "mapped bytes").has_value());
  auto map = MappedFile::open(path("a"));
  ASSERT_TRUE(map.has_value());
  MappedFile moved = std::move(*map);
  const auto bytes = moved.bytes();
  ASSERT_EQ(bytes.size(), 12u);
  EXPECT_EQ(std::memcmp(bytes.data(), "mapped bytes", 12), 0);
  // A map outlives the replacement of its file.
  ASSERT_TRUE(write_file_atomic(path("a"), "other").has_value());
  EXPECT_EQ(std::memcmp(bytes.data(), "mapped bytes", 12), 0);
}

TEST_F(FileTest, MapsAnEmptyFileAndRefusesWhatIsNone) {
  ASSERT_TRUE(write_file_atomic(path("a"), "").has_value());
  EXPECT_TRUE(MappedFile::open(path("a")).value().bytes().empty());
  EXPECT_EQ(MappedFile::open(path("none")).error().code, Code::kNotFound);
  EXPECT_EQ(MappedFile::open(folder_).error().message, folder_ + ": is a folder; name a file");
  EXPECT_EQ(MappedFile::open("/dev/null").error().code, Code::kIo);
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::open(path("pipe")).error().code, Code::kIo);
}

}  // namespace
}  // namespace jige
