//! The data directory: object versions by revision in an embedded database, guarded by a lock file.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, StorageError, TableDefinition};

use crate::persist::damage::{Sum, caught, checksum, quietly};
use crate::persist::private::{self, UNFINISHED, begin, close_to_others, finish, make_folder};
use crate::state::store::{Batch, Reach};

/// The format that this version reads and writes. A folder with another format is left untouched.
const FORMAT: u64 = 2;

/// By revision: the resource, whether this version is a removal, the offset of the text after kind and apiVersion, the
/// text.
type VersionRow = (&'static str, bool, u64, &'static [u8]);
const VERSIONS: TableDefinition<'_, u64, VersionRow> = TableDefinition::new("versions");
/// By resource: the revision of the newest change that has been dropped from its log.
const DROPPED: TableDefinition<'_, &str, u64> = TableDefinition::new("dropped");
/// `format`, `revision`, `floor`, `rows` (the sum over all rows of the other tables) and `check` (over the four
/// before).
const STATE: TableDefinition<'_, &str, u64> = TableDefinition::new("state");

/// The database's page cache. It is small because reads are served from the store in memory.
const CACHE: usize = 8 * 1024 * 1024;

const LOCK: &str = "lock";
const DATABASE: &str = "state.redb";
/// The CA's key and certificate, and the token of a listening server.
pub(crate) const CA_FILE: &str = "ca.pem";
pub(crate) const TOKEN_FILE: &str = "token";
/// The key of service account tokens.
pub(crate) const SECRET_FILE: &str = "service-account.key";
const OURS: &[&str] = &[LOCK, DATABASE, CA_FILE, TOKEN_FILE, SECRET_FILE];

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another server has the folder open.
    #[error("the data directory {} is in use by another server: stop it, or choose another folder", .0.display())]
    InUse(PathBuf),
    /// The folder has files of other programs, which must not be put at risk.
    #[error("the folder {} has files that watchkeeper did not write, such as {file:?}: choose a new or empty folder as data directory", folder.display())]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// One of the foreign files.
        file: String,
    },
    /// A newer version of this program wrote it.
    #[error("the data directory {} has format {found}, but this version supports {FORMAT}: use the newer watchkeeper that wrote it, or choose another folder", folder.display())]
    Newer {
        /// The folder.
        folder: PathBuf,
        /// The format found.
        found: u64,
    },
    /// An older version of this program wrote it.
    #[error("the data directory {} has format {found}, but this version supports {FORMAT}: use the older watchkeeper that wrote it, or remove the folder to start afresh", folder.display())]
    Older {
        /// The folder.
        folder: PathBuf,
        /// The format found.
        found: u64,
    },
    /// Other users could read or change the data.
    #[error("cannot store data in {}, which {problem}: choose a folder of your own as data directory", path.display())]
    NotOwn {
        /// The folder, or a file in it.
        path: PathBuf,
        /// Why the path is not private.
        problem: &'static str,
    },
    /// The data is not what was written.
    #[error("the data directory {} is damaged ({problem}): restore a copy of the whole folder including its file `lock`, or remove the folder to start afresh", folder.display())]
    Damaged {
        /// The folder.
        folder: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The database failed. This does not mean that the data is damaged.
    #[error("cannot use the database in the data directory {}: {problem}; restart the server, which checks the data", folder.display())]
    Failed {
        /// The folder.
        folder: PathBuf,
        /// The database's error.
        problem: String,
    },
    /// The operating system refused access.
    #[error("cannot use the data directory {}: check that it is a writable folder with space left", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

/// An open data directory.
#[derive(Debug)]
pub(crate) struct Disk {
    database: Database,
    folder: PathBuf,
    /// Locked as long as the folder is open. Its content is the newest revision known to be on disk.
    lock: File,
    /// Whether the last update of the lock file succeeded.
    is_noted: Cell<bool>,
}

/// One stored version of an object.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) revision: u64,
    pub(crate) resource: String,
    pub(crate) removed: bool,
    pub(crate) head: usize,
    pub(crate) text: Bytes,
}

/// The stored counters of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) revision: u64,
    pub(crate) floor: u64,
}

/// Everything read from a data directory; `state` is `None` for a new one.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) state: Option<State>,
    pub(crate) dropped: BTreeMap<String, u64>,
    /// In order of revision.
    pub(crate) versions: Vec<Version>,
}

impl Disk {
    /// Opens or creates the folder and reads its content. Holds the lock until dropped.
    pub(crate) fn open(folder: &Path) -> Result<(Self, Kept), DataDirError> {
        let unusable = |source| DataDirError::Io { folder: folder.to_owned(), source };
        refuse_foreign_owner(folder, true)?;
        make_folder(folder).map_err(unusable)?;
        let whole = folder.join(DATABASE);
        if !whole.exists() {
            refuse_foreign(folder)?;
        }
        close_to_others(folder, 0o700).map_err(unusable)?;
        for file in OURS {
            refuse_foreign_owner(&folder.join(file), false)?;
        }
        let mut lock = private::options().create(true).open(folder.join(LOCK)).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DataDirError::InUse(folder.to_owned())),
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        let known = read_note(&mut lock).map_err(unusable)?;
        // Checked under the lock: another server may have created the database and exited meanwhile.
        if !whole.exists() {
            refuse_older(folder, known, None)?;
            let file = begin(&whole).map_err(unusable)?;
            writing(folder, || set_up(&open(file)?))?;
            finish(&whole).map_err(unusable)?;
        }
        close_to_others(&whole, 0o600).map_err(unusable)?;
        let (database, kept) = reading(folder, || read_sound(&whole))?;
        refuse_older(folder, known, kept.state.map(|state| state.revision))?;
        Ok((Self { database, folder: folder.to_owned(), lock, is_noted: Cell::new(true) }, kept))
    }

    /// A disk on a backend of the test, in a folder called "somewhere".
    #[cfg(test)]
    pub(crate) fn over(backend: impl redb::StorageBackend, lock: File) -> Self {
        let database = Database::builder().create_with_backend(backend).unwrap();
        set_up(&database).unwrap();
        Self { database, folder: "somewhere".into(), lock, is_noted: Cell::new(true) }
    }

    /// Writes a batch atomically; it is on disk when this returns.
    pub(crate) fn write(&self, batch: &Batch) -> Result<(), DataDirError> {
        writing(&self.folder, || write(&self.database, batch))?;
        self.note(batch.revision);
        Ok(())
    }

    /// Records the newest revision on disk. A missing or stale record is harmless: it only fails to detect a database
    /// that fell back to an older state.
    fn note(&self, revision: u64) {
        let noted = write_note(&self.lock, revision);
        if let Err(error) = &noted {
            // A partial record has a wrong checksum, so a failure to drop it is harmless.
            let _dropped = self.lock.set_len(0);
            if self.is_noted.get() {
                tracing::warn!(folder = %self.folder.display(), %error, "cannot record the newest revision in the lock file");
            }
        }
        self.is_noted.set(noted.is_ok());
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the error for a version that fails to decode.
    pub(crate) fn damaged(&self, problem: &impl std::fmt::Display) -> DataDirError {
        DataDirError::Damaged { folder: self.folder.clone(), problem: problem.to_string() }
    }
}

/// Refuses a folder with files of other programs, which was probably named by mistake.
fn refuse_foreign(folder: &Path) -> Result<(), DataDirError> {
    let unusable = |source| DataDirError::Io { folder: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(unusable)? {
        let file = entry.map_err(unusable)?.file_name().to_string_lossy().into_owned();
        if !OURS.contains(&file.strip_suffix(UNFINISHED).unwrap_or(&file)) {
            return Err(DataDirError::Foreign { folder: folder.to_owned(), file });
        }
    }
    Ok(())
}

/// Refuses a database older than the lock file records: if its newest state is damaged, redb falls back to the previous
/// one.
fn refuse_older(folder: &Path, known: Option<u64>, found: Option<u64>) -> Result<(), DataDirError> {
    let Some(known) = known.filter(|known| Some(*known) > found) else { return Ok(()) };
    let found = found.map_or("is empty".to_owned(), |at| format!("ends at revision {at}"));
    let problem = format!(
        "the database {found}, but the file `lock` records revision {known}; without `lock` it is opened as it is"
    );
    Err(DataDirError::Damaged { folder: folder.to_owned(), problem })
}

/// Refuses paths that another user may have planted to read the data or to redirect writes.
fn refuse_foreign_owner(path: &Path, is_folder: bool) -> Result<(), DataDirError> {
    match private::problem(path, is_folder) {
        Ok(None) => Ok(()),
        Ok(Some(problem)) => Err(DataDirError::NotOwn { path: path.to_owned(), problem }),
        Err(source) => Err(DataDirError::Io { folder: path.to_owned(), source }),
    }
}

/// Why the database cannot be used.
enum Unusable {
    Database(redb::Error),
    /// It can be read, but its checksums do not match.
    Unsound(&'static str),
    Format(u64),
}

impl<E: Into<redb::Error>> From<E> for Unusable {
    fn from(error: E) -> Self {
        Self::Database(error.into())
    }
}

/// Runs code that reads the database. A panic of the database counts as damage.
fn reading<T>(folder: &Path, work: impl FnOnce() -> Result<T, Unusable>) -> Result<T, DataDirError> {
    let damaged = |problem| DataDirError::Damaged { folder: folder.to_owned(), problem };
    match quietly(work) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(Unusable::Database(error))) => Err(unreadable(folder, error)),
        Ok(Err(Unusable::Unsound(what))) => Err(damaged(format!("the checksum of {what} is wrong"))),
        Ok(Err(Unusable::Format(found))) if found > FORMAT => {
            Err(DataDirError::Newer { folder: folder.to_owned(), found })
        }
        Ok(Err(Unusable::Format(found))) => Err(DataDirError::Older { folder: folder.to_owned(), found }),
        Err(panic) => Err(damaged(format!("the database cannot be read: {panic}"))),
    }
}

/// Runs code that writes to the database. It was sound when opened, so neither an error nor a panic counts as damage.
fn writing<T>(folder: &Path, work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, DataDirError> {
    match caught(work) {
        Ok(done) => done.map_err(|error| failed(folder, error)),
        Err(panic) => {
            Err(DataDirError::Failed { folder: folder.to_owned(), problem: format!("it panicked: {panic}") })
        }
    }
}

/// Reads the newest revision recorded in the lock file, or `None`.
///
/// The record is written after the database has been synced, and is not synced itself. It is never ahead of the
/// database, and a torn record is ignored.
fn read_note(lock: &mut File) -> io::Result<Option<u64>> {
    let mut note = Vec::with_capacity(16);
    lock.take(17).read_to_end(&mut note)?;
    let number = |at: usize| Some(u64::from_le_bytes(note.get(at..at + 8)?.try_into().ok()?));
    Ok(number(0).filter(|revision| note.len() == 16 && number(8) == Some(note_check(*revision))))
}

fn write_note(mut lock: &File, revision: u64) -> io::Result<()> {
    lock.rewind()?;
    lock.write_all(&[revision.to_le_bytes(), note_check(revision).to_le_bytes()].concat())
}

fn note_check(revision: u64) -> u64 {
    checksum(&[b"note", &revision.to_le_bytes()])
}

fn open(file: File) -> Result<Database, redb::Error> {
    Ok(Database::builder().set_cache_size(CACHE).create_file(file)?)
}

/// Creates the tables of a new database.
fn set_up(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(VERSIONS)?;
    transaction.open_table(DROPPED)?;
    {
        let mut state = transaction.open_table(STATE)?;
        state.insert("format", FORMAT)?;
        state.insert("check", state_check(0, 0, 0))?;
    }
    transaction.commit()?;
    Ok(())
}

/// Opens a database and reads it, verifying its checksums.
fn read_sound(file: &Path) -> Result<(Database, Kept), Unusable> {
    let mut database = open(private::options().open(file)?)?;
    // Checks the pages. A repair may fall back to an older state, which `refuse_older` detects.
    database.check_integrity()?;
    let state = database.begin_read()?.open_table(STATE)?;
    let number = |name| Ok::<_, StorageError>(state.get(name)?.map(|number| number.value()));
    match number("format")? {
        Some(FORMAT) => {}
        Some(other) => return Err(Unusable::Format(other)),
        None => return Err(redb::Error::Corrupted("no format".to_owned()).into()),
    }
    let (revision, floor) = (number("revision")?, number("floor")?);
    let (rows, check) = (number("rows")?.unwrap_or(0), number("check")?);
    if check != Some(state_check(revision.unwrap_or(0), floor.unwrap_or(0), rows)) {
        return Err(Unusable::Unsound("its counters"));
    }
    let (mut kept, sum) = read(&database)?;
    if sum != Sum(rows) {
        return Err(Unusable::Unsound("its objects"));
    }
    kept.state = revision.zip(floor).map(|(revision, floor)| State { revision, floor });
    drop(state);
    Ok((database, kept))
}

/// Reads all rows and the sum over them.
fn read(database: &Database) -> Result<(Kept, Sum), redb::Error> {
    let transaction = database.begin_read()?;
    let (mut kept, mut sum) = (Kept::default(), Sum::default());
    for row in transaction.open_table(DROPPED)?.iter()? {
        let (resource, revision) = row?;
        sum.add(dropped_check(resource.value(), revision.value()));
        kept.dropped.insert(resource.value().to_owned(), revision.value());
    }
    for row in transaction.open_table(VERSIONS)?.iter()? {
        let (revision, row) = row?;
        let (revision, (resource, removed, head, text)) = (revision.value(), row.value());
        sum.add(version_check(revision, row.value()));
        kept.versions.push(Version {
            revision,
            resource: resource.to_owned(),
            removed,
            head: usize::try_from(head).unwrap_or(usize::MAX),
            text: Bytes::copy_from_slice(text),
        });
    }
    Ok((kept, sum))
}

fn version_check(revision: u64, (resource, removed, head, text): (&str, bool, u64, &[u8])) -> u64 {
    let (revision, head) = (revision.to_le_bytes(), head.to_le_bytes());
    checksum(&[b"version", &revision, resource.as_bytes(), &[u8::from(removed)], &head, text])
}

fn dropped_check(resource: &str, revision: u64) -> u64 {
    checksum(&[b"dropped", resource.as_bytes(), &revision.to_le_bytes()])
}

fn state_check(revision: u64, floor: u64, rows: u64) -> u64 {
    let numbers = [FORMAT, revision, floor, rows].map(u64::to_le_bytes);
    checksum(&[b"state", &numbers.concat()])
}

fn write(database: &Database, batch: &Batch) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut state = transaction.open_table(STATE)?;
        let mut sum = Sum(state.get("rows")?.map_or(0, |rows| rows.value()));
        let mut versions = transaction.open_table(VERSIONS)?;
        for (id, stored, removed) in &batch.versions {
            let row = (id.as_str(), *removed, stored.head as u64, &*stored.bytes);
            sum.add(version_check(stored.revision, row));
            if let Some(before) = versions.insert(stored.revision, row)? {
                sum.remove(version_check(stored.revision, before.value()));
            }
        }
        for revision in &batch.forgotten {
            if let Some(before) = versions.remove(revision)? {
                sum.remove(version_check(*revision, before.value()));
            }
        }
        let mut dropped = transaction.open_table(DROPPED)?;
        for (id, reach) in &batch.resources {
            let before = match reach {
                Reach::AsBefore => None,
                Reach::After(revision) => {
                    sum.add(dropped_check(id.as_str(), *revision));
                    dropped.insert(id.as_str(), revision)?
                }
                Reach::Gone => dropped.remove(id.as_str())?,
            };
            if let Some(before) = before {
                sum.remove(dropped_check(id.as_str(), before.value()));
            }
        }
        state.insert("revision", batch.revision)?;
        state.insert("floor", batch.floor)?;
        state.insert("rows", sum.0)?;
        state.insert("check", state_check(batch.revision, batch.floor, sum.0))?;
    }
    transaction.commit()?;
    Ok(())
}

/// Maps an error of the database while reading to damage or failure.
fn unreadable(folder: &Path, error: redb::Error) -> DataDirError {
    use redb::Error;
    let problem = match error {
        Error::UpgradeRequired(found) => format!("its database has the old layout {found}"),
        Error::Io(ref source)
            if matches!(source.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
            source.to_string()
        }
        Error::Corrupted(_)
        | Error::TableDoesNotExist(_)
        | Error::TableTypeMismatch { .. }
        | Error::TableIsMultimap(_)
        | Error::TypeDefinitionChanged { .. } => error.to_string(),
        error => return failed(folder, error),
    };
    DataDirError::Damaged { folder: folder.to_owned(), problem }
}

/// Maps an error of the database that is not damage.
fn failed(folder: &Path, error: redb::Error) -> DataDirError {
    let folder = folder.to_owned();
    match error {
        redb::Error::DatabaseAlreadyOpen => DataDirError::InUse(folder),
        redb::Error::Io(source) => DataDirError::Io { folder, source },
        error => DataDirError::Failed { folder, problem: error.to_string() },
    }
}
