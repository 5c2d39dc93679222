#include "daemon/record_log.h"

#include <spdlog/spdlog.h>
#include <sqlite3.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rjdbi::daemon {
namespace {

// Changes that wait for the disk. Records beyond are only in memory.
constexpr size_t kMostPendingBytes = size_t{64} << 20;
// How long changes gather, so that a transaction is worth its price.
constexpr std::chrono::milliseconds kGather{100};

constexpr char kSchema[] =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA user_version=1;"
    "CREATE TABLE IF NOT EXISTS origins(id INTEGER PRIMARY KEY, origin BLOB NOT NULL);"
    "CREATE TABLE IF NOT EXISTS chunks(number INTEGER PRIMARY KEY, origin INTEGER NOT NULL,"
    " attachment TEXT NOT NULL, received INTEGER NOT NULL, sites BLOB NOT NULL,"
    " records BLOB NOT NULL);";

int64_t Signed(uint64_t value) { return static_cast<int64_t>(value); }
uint64_t Unsigned(int64_t value) { return static_cast<uint64_t>(value); }

// One statement, run once; finalised with the object. Bound memory is the caller's.
class Statement {
 public:
  Statement(sqlite3* db, const char* sql) {
    ok_ = sqlite3_prepare_v2(db, sql, -1, &statement_, nullptr) == SQLITE_OK;
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& Number(int64_t value) {
    ok_ = ok_ && sqlite3_bind_int64(statement_, ++bound_, value) == SQLITE_OK;
    return *this;
  }
  Statement& Bytes(const void* data, size_t size) {
    ok_ = ok_ && sqlite3_bind_blob64(statement_, ++bound_, size == 0 ? "" : data, size,
                                     SQLITE_STATIC) == SQLITE_OK;
    return *this;
  }
  Statement& Text(const std::string& text) {
    ok_ = ok_ && sqlite3_bind_text64(statement_, ++bound_, text.data(), text.size(), SQLITE_STATIC,
                                     SQLITE_UTF8) == SQLITE_OK;
    return *this;
  }
  bool Run() { return ok_ && sqlite3_step(statement_) == SQLITE_DONE; }
  bool Next() { return ok_ && (last_ = sqlite3_step(statement_)) == SQLITE_ROW; }
  bool Ended() const { return ok_ && last_ == SQLITE_DONE; }

  int64_t NumberAt(int column) { return sqlite3_column_int64(statement_, column); }
  std::string BytesAt(int column) {
    const void* data = sqlite3_column_blob(statement_, column);
    const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_, column));
    return data == nullptr ? "" : std::string(static_cast<const char*>(data), size);
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
  bool ok_ = false;
  int bound_ = 0, last_ = SQLITE_OK;
};

bool IsVersion1(sqlite3* db) {
  Statement version(db, "PRAGMA user_version");
  Statement tables(db, "SELECT count(*) FROM sqlite_master");
  if (!version.Next() || !tables.Next()) return false;
  return version.NumberAt(0) == 1 || (version.NumberAt(0) == 0 && tables.NumberAt(0) == 0);
}

}  // namespace

RecordLog::RecordLog(std::string file) : file_(std::move(file)) {
  if (file_.empty()) return;
  if (!Open()) {
    Close();
    for (const char* suffix : {"", "-wal", "-shm"}) {
      std::rename((file_ + suffix).c_str(), (file_ + ".bad" + suffix).c_str());
    }
    if (!Open()) {
      problem_ = db_ == nullptr ? "no memory" : sqlite3_errmsg(db_);
      Close();
      spdlog::error("{}: {}; trace records will not survive a restart", file_, problem_);
      return;
    }
    spdlog::error("{} could not be read; it was moved to {}.bad", file_, file_);
  }
}

RecordLog::~RecordLog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
  Close();
}

bool RecordLog::Open() {
  return sqlite3_open_v2(file_.c_str(), &db_,
                         SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                         nullptr) == SQLITE_OK &&
         IsVersion1(db_) && sqlite3_exec(db_, kSchema, nullptr, nullptr, nullptr) == SQLITE_OK;
}

void RecordLog::Close() {
  sqlite3_close(db_);
  db_ = nullptr;
}

void RecordLog::Load(const std::function<void(uint64_t, const std::string&)>& take_origin,
                     const std::function<void(Chunk)>& take_chunk) {
  if (db_ == nullptr) return;
  Statement origins(db_, "SELECT id, origin FROM origins ORDER BY id");
  while (origins.Next()) take_origin(Unsigned(origins.NumberAt(0)), origins.BytesAt(1));
  Statement chunks(db_,
                   "SELECT number, origin, attachment, received, sites, records FROM chunks"
                   " ORDER BY number");
  while (chunks.Next()) {
    Chunk chunk;
    chunk.number = Unsigned(chunks.NumberAt(0));
    chunk.origin = Unsigned(chunks.NumberAt(1));
    chunk.attachment = chunks.BytesAt(2);
    chunk.received_unix_ns = chunks.NumberAt(3);
    const std::string sites = chunks.BytesAt(4);
    chunk.sites.resize(sites.size() / sizeof(uint32_t));
    std::memcpy(chunk.sites.data(), sites.data(), chunk.sites.size() * sizeof(uint32_t));
    chunk.bytes = std::make_shared<std::string>(chunks.BytesAt(5));
    take_chunk(std::move(chunk));
  }
  if (!origins.Ended() || !chunks.Ended()) {
    spdlog::error("{}: {}; trace records are missing", file_, sqlite3_errmsg(db_));
  }
  thread_ = std::thread([this] { Run(); });  // from here on the database is the thread's
}

void RecordLog::Enqueue(Change change) {
  if (db_ == nullptr) return;
  {
    const std::lock_guard lock(mutex_);
    const size_t bytes = change.chunk.bytes ? change.chunk.bytes->size() : 0;
    if (pending_bytes_ + bytes > kMostPendingBytes) {
      problem_ = "the disk is too slow for the records that come in";
      return;
    }
    pending_bytes_ += bytes;
    pending_.push_back(std::move(change));
  }
  wake_.notify_one();
}

void RecordLog::Put(Chunk chunk) { Enqueue({Change::Kind::kPut, std::move(chunk), ""}); }

void RecordLog::PutOrigin(uint64_t id, std::string origin) {
  Change change = {Change::Kind::kPutOrigin, {}, std::move(origin)};
  change.chunk.origin = id;
  Enqueue(std::move(change));
}

void RecordLog::Erase(uint64_t number) {
  Change change = {Change::Kind::kErase, {}, ""};
  change.chunk.number = number;
  Enqueue(std::move(change));
}

void RecordLog::EraseOrigin(uint64_t id) {
  Change change = {Change::Kind::kEraseOrigin, {}, ""};
  change.chunk.origin = id;
  Enqueue(std::move(change));
}

std::string RecordLog::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

bool RecordLog::Apply(const Change& change) {
  const Chunk& chunk = change.chunk;
  switch (change.kind) {
    case Change::Kind::kPut:
      return Statement(db_, "INSERT OR REPLACE INTO chunks VALUES(?,?,?,?,?,?)")
          .Number(Signed(chunk.number))
          .Number(Signed(chunk.origin))
          .Text(chunk.attachment)
          .Number(chunk.received_unix_ns)
          .Bytes(chunk.sites.data(), chunk.sites.size() * sizeof(uint32_t))
          .Bytes(chunk.bytes->data(), chunk.bytes->size())
          .Run();
    case Change::Kind::kErase:
      return Statement(db_, "DELETE FROM chunks WHERE number = ?")
          .Number(Signed(chunk.number))
          .Run();
    case Change::Kind::kPutOrigin:
      return Statement(db_, "INSERT OR REPLACE INTO origins VALUES(?,?)")
          .Number(Signed(chunk.origin))
          .Bytes(change.origin.data(), change.origin.size())
          .Run();
    case Change::Kind::kEraseOrigin:
      return Statement(db_, "DELETE FROM origins WHERE id = ?").Number(Signed(chunk.origin)).Run();
  }
  return false;
}

bool RecordLog::Write(const std::vector<Change>& changes) {
  bool ok = sqlite3_exec(db_, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK;
  for (const Change& change : changes) ok = ok && Apply(change);
  ok = ok && sqlite3_exec(db_, "COMMIT", nullptr, nullptr, nullptr) == SQLITE_OK;
  return ok;
}

void RecordLog::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !pending_.empty(); });
    if (pending_.empty()) return;
    wake_.wait_for(lock, kGather, [this] { return stopping_; });
    std::vector<Change> changes = std::move(pending_);
    pending_.clear();
    pending_bytes_ = 0;
    lock.unlock();
    const bool ok = Write(changes);
    const std::string why = ok ? "" : sqlite3_errmsg(db_);
    if (!ok) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
    lock.lock();
    if (!ok && problem_.empty()) spdlog::error("{}: {}", file_, why);
    problem_ = why;
  }
}

}  // namespace rjdbi::daemon
