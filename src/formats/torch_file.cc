#include "formats/torch_file.h"

#include "formats/byte_reader.h"
#include "formats/torch_state_dict.h"
#include "formats/zip_directory.h"

namespace jige::formats {
namespace {

constexpr std::string_view kPickleEntry = "/data.pkl";
constexpr std::string_view kProgramEntry = "/constants.pkl";
constexpr char kProtocolOpcode = '\x80';
constexpr std::string_view kLegacyMagic = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr int64_t kLegacyVersion = 1001;

tl::unexpected<Error> big_endian(std::string_view where) {
  return fail(Code::kUnsupported, "{}: has big-endian numbers; {}", where, kTorchRemedy);
}

class ArchiveReader {
 public:
  ArchiveReader(std::span<const std::byte> file, std::string_view where)
      : file_(file), where_(where) {}

  Result<std::vector<StoredTensor>> run() {
    JIGE_TRY(const std::vector<ZipEntry> entries, read_zip_directory(file_, where_));
    JIGE_TRY(const ZipEntry* pickle_entry, find_pickle(entries));
    std::string_view folder = pickle_entry->name;
    folder.remove_suffix(kPickleEntry.size());
    TorchStorages storages;
    for (const ZipEntry& entry : entries) {
      if (!entry.name.starts_with(folder)) continue;
      const std::string_view name = entry.name.substr(folder.size());
      if (name == kProgramEntry) {
        return fail(Code::kUnsupported, "{}: is a program of TorchScript and no state dict; {}",
                    where_, kTorchRemedy);
      }
      if (name == "/byteorder" && entry.stored && text_of(entry) == "big") {
        return big_endian(where_);
      }
      constexpr std::string_view kStorage = "/data/";
      if (!name.starts_with(kStorage)) continue;
      JIGE_DO(expect_stored(entry));
      storages.emplace(name.substr(kStorage.size()), TorchStorage{entry.offset, entry.bytes});
    }
    JIGE_TRY(const Pickle pickle,
             read_pickle(file_.subspan(pickle_entry->offset, pickle_entry->bytes), where_));
    return read_state_dict(pickle, storages, where_);
  }

 private:
  Result<const ZipEntry*> find_pickle(const std::vector<ZipEntry>& entries) const {
    const ZipEntry* found = nullptr;
    for (const ZipEntry& entry : entries) {
      if (!entry.name.ends_with(kPickleEntry)) continue;
      if (found) {
        return fail(Code::kCorrupt, "{}: is a zip archive with two entries data.pkl", where_);
      }
      found = &entry;
    }
    if (!found) {
      return fail(Code::kUnsupported,
                  "{}: is a zip archive without an entry data.pkl, so torch.save did not write it",
                  where_);
    }
    JIGE_DO(expect_stored(*found));
    return found;
  }

  Status expect_stored(const ZipEntry& entry) const {
    if (entry.stored) return {};
    return fail(Code::kUnsupported,
                "{}: entry \"{}\" is packed, which torch.save does not do; unpack the archive and "
                "pack it anew without compression (zip -0), or {}",
                where_, entry.name.substr(0, 200), kTorchRemedy);
  }

  std::string_view text_of(const ZipEntry& entry) const {
    return {reinterpret_cast<const char*>(file_.data()) + entry.offset, entry.bytes};
  }

  std::span<const std::byte> file_;
  std::string_view where_;
};

class LegacyReader {
 public:
  LegacyReader(std::span<const std::byte> file, std::string_view where)
      : file_(file), where_(where) {}

  Result<std::vector<StoredTensor>> run() {
    JIGE_DO(read_head());
    JIGE_TRY(const Pickle object, next_pickle());
    JIGE_TRY(const TorchStorages storages, read_storages(object));
    return read_state_dict(object, storages, where_);
  }

 private:
  Result<Pickle> next_pickle() {
    JIGE_TRY(Pickle pickle, read_pickle(file_.subspan(at_), where_));
    at_ += pickle.size;
    return pickle;
  }

  Status read_head() {
    JIGE_TRY(const Pickle magic, next_pickle());
    if (magic.top().kind != PickleKind::kOtherNumber || magic.top().text != kLegacyMagic) {
      return fail(Code::kUnsupported, "{}: is a pickle that torch.save did not write; {}", where_,
                  kTorchRemedy);
    }
    JIGE_TRY(const Pickle version, next_pickle());
    if (version.top().kind != PickleKind::kInt || version.top().number != kLegacyVersion) {
      return fail(Code::kUnsupported, "{}: is of another version of torch's format than {}; {}",
                  where_, kLegacyVersion, kTorchRemedy);
    }
    JIGE_TRY(const Pickle machine, next_pickle());
    const PickleValue* little = machine.find(machine.top(), "little_endian");
    if (!little || little->kind != PickleKind::kBool || little->number == 0) {
      return big_endian(where_);
    }
    return {};
  }

  Result<TorchStorages> read_storages(const Pickle& object) {
    JIGE_TRY(const std::vector<TorchStorageName> named, torch_storage_names(object, where_));
    std::unordered_map<std::string_view, const TorchStorageName*> known;
    for (const TorchStorageName& name : named) known.emplace(name.key, &name);
    JIGE_TRY(const Pickle keys, next_pickle());
    ByteReader data(file_, where_, at_);
    TorchStorages storages;
    for (const uint32_t item : keys.top().items) {
      const std::string_view key = keys[item].text;
      const auto it = known.find(key);
      if (it == known.end()) {
        return fail(Code::kCorrupt, "{}: lists storage \"{}\", which no tensor is in", where_,
                    pickle_shown(key));
      }
      const std::string what = fmt::format("storage \"{}\"", pickle_shown(key));
      JIGE_TRY(const int64_t count, data.read<int64_t>(what));
      const TorchStorageName& name = *it->second;
      const uint64_t offset = data.at();
      if (count < 0 || static_cast<uint64_t>(count) != name.count) {
        return fail(Code::kCorrupt, "{}: {} has {} elements, but {} by its tensors", where_, what,
                    count, name.count);
      }
      JIGE_DO(data.take(name.bytes, what));
      storages.emplace(name.key, TorchStorage{offset, name.bytes});
    }
    return storages;
  }

  std::span<const std::byte> file_;
  std::string_view where_;
  size_t at_ = 0;
};

Result<std::vector<StoredTensor>> read_tensors(std::span<const std::byte> file,
                                               std::string_view where) {
  if (is_zip(file)) return ArchiveReader(file, where).run();
  if (!file.empty() && static_cast<char>(file[0]) == kProtocolOpcode) {
    return LegacyReader(file, where).run();
  }
  return fail(Code::kCorrupt,
              "{}: has {} bytes that begin neither as a zip archive nor as a pickle, so torch.save "
              "did not write it, or that of a torch before 0.2; fetch it again",
              where, file.size());
}

}  // namespace

Result<TensorTable> parse_torch_file(std::span<const std::byte> file, std::string_view where) {
  TensorTable table;
  JIGE_TRY(table.tensors, read_tensors(file, where));
  JIGE_DO(table.arrange(where));
  return table;
}

Result<TensorFile> open_torch_file(const std::string& path) {
  JIGE_TRY(MappedFile map, MappedFile::open(path));
  JIGE_TRY(TensorTable table, parse_torch_file(map.bytes(), path));
  return TensorFile(std::move(map), std::move(table));
}

}  // namespace jige::formats
