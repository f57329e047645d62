//! How is the state kept in a folder? Versions of objects by revision in one file of an embedded database, under a lock.

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

/// What this version writes and reads. A folder with another number is left alone.
const FORMAT: u64 = 2;

/// By revision: the resource, whether the object is gone with this version, where its text goes on after kind and apiVersion, the text.
type VersionRow = (&'static str, bool, u64, &'static [u8]);
const VERSIONS: TableDefinition<'_, u64, VersionRow> = TableDefinition::new("versions");
/// By resource: the revision of the newest change that has left its log.
const DROPPED: TableDefinition<'_, &str, u64> = TableDefinition::new("dropped");
/// `format`, `revision`, `floor`, `rows` (the sum over all rows of the other tables) and `check` (over the four before it).
const STATE: TableDefinition<'_, &str, u64> = TableDefinition::new("state");

/// How much of the file is kept in memory: everything that is asked for is in the store already.
const CACHE: usize = 8 * 1024 * 1024;

const LOCK: &str = "lock";
const DATABASE: &str = "state.redb";
/// The CA's key and certificate, and the token of a server that listens.
pub(crate) const CA_FILE: &str = "ca.pem";
pub(crate) const TOKEN_FILE: &str = "token";
const OURS: &[&str] = &[LOCK, DATABASE, CA_FILE, TOKEN_FILE];

/// Why a folder cannot keep the state of a server.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Two servers cannot share a folder.
    #[error("the data directory {} is in use by another server: stop that one, or name another folder", .0.display())]
    InUse(PathBuf),
    /// What is in the folder is not ours, and would be in danger.
    #[error("the folder {} has files that are not watchkeeper's, such as {file:?}: name a new or an empty folder as data directory", folder.display())]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// One of those files.
        file: String,
    },
    /// A newer version of this program wrote it.
    #[error("the data directory {} has format {found}, and this version knows {FORMAT}: use the newer watchkeeper that wrote it, or name another folder", folder.display())]
    Newer {
        /// The folder.
        folder: PathBuf,
        /// The number it has.
        found: u64,
    },
    /// An older version of this program wrote it.
    #[error("the data directory {} has format {found}, and this version knows {FORMAT}: use the older watchkeeper that wrote it, or remove the folder to begin anew", folder.display())]
    Older {
        /// The folder.
        folder: PathBuf,
        /// The number it has.
        found: u64,
    },
    /// Somebody else could read or change what is kept there.
    #[error("cannot keep data in {}, which {problem}: name a folder of your own as data directory", path.display())]
    NotOwn {
        /// The folder, or a file in it.
        path: PathBuf,
        /// Whose it is, or what.
        problem: &'static str,
    },
    /// What was written is not what is read.
    #[error("the data directory {} is damaged ({problem}): bring back a copy of the whole folder, its file `lock` included, or remove the folder to begin anew", folder.display())]
    Damaged {
        /// The folder.
        folder: PathBuf,
        /// What does not fit.
        problem: String,
    },
    /// The database failed, which says nothing of what is in the folder.
    #[error("cannot use the database in the data directory {}: {problem}; start the server again, which checks what is there", folder.display())]
    Failed {
        /// The folder.
        folder: PathBuf,
        /// What the database said.
        problem: String,
    },
    /// The operating system refuses.
    #[error("cannot use the data directory {}: see that it is a folder you may write to, with space left", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// An open folder.
#[derive(Debug)]
pub(crate) struct Disk {
    database: Database,
    folder: PathBuf,
    /// Held as long as the folder is in use. Its contents are the newest revision that is known to be on the disk.
    lock: File,
    /// Whether the lock holds that revision.
    is_noted: Cell<bool>,
}

/// One version of one object, as it was kept.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) revision: u64,
    pub(crate) resource: String,
    pub(crate) removed: bool,
    pub(crate) head: usize,
    pub(crate) text: Bytes,
}

/// The counters of a server that was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) revision: u64,
    pub(crate) floor: u64,
}

/// Everything that was kept; without a state nothing was.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) state: Option<State>,
    pub(crate) dropped: BTreeMap<String, u64>,
    /// In the order of their revisions.
    pub(crate) versions: Vec<Version>,
}

impl Disk {
    /// Opens the folder, or makes it, and reads what is there. Nobody else can open it until this is dropped.
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
        // Only now: another server may have made it, and ended, before the lock was taken.
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

    /// A disk of a test's own making, in a folder called "somewhere".
    #[cfg(test)]
    pub(crate) fn over(backend: impl redb::StorageBackend, lock: File) -> Self {
        let database = Database::builder().create_with_backend(backend).unwrap();
        set_up(&database).unwrap();
        Self { database, folder: "somewhere".into(), lock, is_noted: Cell::new(true) }
    }

    /// Writes a batch, whole or not at all; it is on the disk when this returns.
    pub(crate) fn write(&self, batch: &Batch) -> Result<(), DataDirError> {
        writing(&self.folder, || write(&self.database, batch))?;
        self.note(batch.revision);
        Ok(())
    }

    /// Notes what is on the disk. The batch is safe without: a note that is missing or older only hides a database that goes back.
    fn note(&self, revision: u64) {
        let noted = write_note(&self.lock, revision);
        if let Err(error) = &noted {
            // Part of a note may be there; if it cannot be dropped either, its checksum is wrong or it is an older one.
            let _dropped = self.lock.set_len(0);
            if self.is_noted.get() {
                tracing::warn!(folder = %self.folder.display(), %error, "cannot note the newest version in the file lock");
            }
        }
        self.is_noted.set(noted.is_ok());
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A version that cannot be what was written.
    pub(crate) fn damaged(&self, problem: &impl std::fmt::Display) -> DataDirError {
        DataDirError::Damaged { folder: self.folder.clone(), problem: problem.to_string() }
    }
}

/// Before the first use: a folder with other files in it was named by mistake.
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

/// Refuses a database that ends before what was known to be on the disk: one that finds its newest state damaged goes back to the one before.
fn refuse_older(folder: &Path, known: Option<u64>, found: Option<u64>) -> Result<(), DataDirError> {
    let Some(known) = known.filter(|known| Some(*known) > found) else { return Ok(()) };
    let found = found.map_or("nothing".to_owned(), |at| format!("version {at}"));
    let problem = format!(
        "it ends with {found}, and had version {known} before, says its file `lock`; without that file it is opened as it is"
    );
    Err(DataDirError::Damaged { folder: folder.to_owned(), problem })
}

/// Refuses what another user could have put there to read along, or to be written to in place of something else.
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
    /// It is sound, but not what was written.
    Unsound(&'static str),
    Format(u64),
}

impl<E: Into<redb::Error>> From<E> for Unusable {
    fn from(error: E) -> Self {
        Self::Database(error.into())
    }
}

/// Runs code that reads the database; where damage makes it panic, that is damage.
fn reading<T>(folder: &Path, work: impl FnOnce() -> Result<T, Unusable>) -> Result<T, DataDirError> {
    let damaged = |problem| DataDirError::Damaged { folder: folder.to_owned(), problem };
    match quietly(work) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(Unusable::Database(error))) => Err(unreadable(folder, error)),
        Ok(Err(Unusable::Unsound(what))) => Err(damaged(format!("{what} are not those that were written"))),
        Ok(Err(Unusable::Format(found))) if found > FORMAT => {
            Err(DataDirError::Newer { folder: folder.to_owned(), found })
        }
        Ok(Err(Unusable::Format(found))) => Err(DataDirError::Older { folder: folder.to_owned(), found }),
        Err(panic) => Err(damaged(format!("the database cannot be read: {panic}"))),
    }
}

/// Runs code that writes to a database that was sound when it was opened: no failure of it, nor a panic, is damage.
fn writing<T>(folder: &Path, work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, DataDirError> {
    match caught(work) {
        Ok(done) => done.map_err(|error| failed(folder, error)),
        Err(panic) => {
            Err(DataDirError::Failed { folder: folder.to_owned(), problem: format!("it panicked: {panic}") })
        }
    }
}

/// The newest revision that was on the disk when this was written; none if nobody knows.
///
/// It is written after the database has been synced, and not synced itself: so it is never ahead, and a torn one does no harm.
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

/// The tables of a new database.
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

/// Opens a database and reads it, if all of it is as it was written.
fn read_sound(file: &Path) -> Result<(Database, Kept), Unusable> {
    let mut database = open(private::options().open(file)?)?;
    // The pages. Damage there may be mended by going back to an older state, which the caller notices.
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

/// All rows, and the sum over them.
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

/// What an error of a database that is being read means for the folder.
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

/// An error of the database that says nothing of what is on the disk.
fn failed(folder: &Path, error: redb::Error) -> DataDirError {
    let folder = folder.to_owned();
    match error {
        redb::Error::DatabaseAlreadyOpen => DataDirError::InUse(folder),
        redb::Error::Io(source) => DataDirError::Io { folder, source },
        error => DataDirError::Failed { folder, problem: error.to_string() },
    }
}
