//! How is the state kept in a folder? Versions of objects by revision in one file of an embedded database, under a lock.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, StorageError, TableDefinition};

use crate::core::NotRestored;
use crate::credentials::{CA_FILE, TOKEN_FILE};
use crate::store::{Batch, Reach};

/// What this version writes. A folder with a higher number is left alone.
const FORMAT: u64 = 1;

/// By revision: the resource, whether the object is gone with this version, where its text goes on after kind and apiVersion, the text.
type VersionRow = (&'static str, bool, u64, &'static [u8]);
const VERSIONS: TableDefinition<'_, u64, VersionRow> = TableDefinition::new("versions");
/// By resource: the revision of the newest change that has left its log.
const DROPPED: TableDefinition<'_, &str, u64> = TableDefinition::new("dropped");
/// `format`, `revision` and `floor`.
const STATE: TableDefinition<'_, &str, u64> = TableDefinition::new("state");

/// How much of the file is kept in memory: everything that is asked for is in the store already.
const CACHE: usize = 8 * 1024 * 1024;

const LOCK: &str = "lock";
const DATABASE: &str = "state.redb";
/// What a file in the making has behind its name: it gets its name once it is whole.
const UNFINISHED: &str = ".new";
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
    /// What was written is not what is read.
    #[error("the data directory {} is damaged ({problem}): bring it back from a copy, or remove it to begin anew", folder.display())]
    Damaged {
        /// The folder.
        folder: PathBuf,
        /// What does not fit.
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
    /// Held as long as the folder is in use.
    _lock: File,
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
        make_folder(folder).map_err(unusable)?;
        let whole = folder.join(DATABASE);
        if !whole.exists() {
            refuse_foreign(folder)?;
        }
        let lock = private().open(folder.join(LOCK)).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DataDirError::InUse(folder.to_owned())),
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        let failed = |error: redb::Error| explain(folder, error);
        if !whole.exists() {
            let unfinished = unfinished(&whole);
            match fs::remove_file(&unfinished) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unusable(error)),
                _ => {}
            }
            open(&unfinished).and_then(|database| set_up(&database)).map_err(failed)?;
            finish(&whole).map_err(unusable)?;
        }
        close_to_others(folder, 0o700).and_then(|()| close_to_others(&whole, 0o600)).map_err(unusable)?;
        let database = open(&whole).map_err(failed)?;
        let found = read_format(&database).map_err(failed)?;
        if found > FORMAT {
            return Err(DataDirError::Newer { folder: folder.to_owned(), found });
        }
        let kept = read(&database).map_err(failed)?;
        Ok((Self { database, folder: folder.to_owned(), _lock: lock }, kept))
    }

    /// A disk of a test's own making, in a folder called "somewhere".
    #[cfg(test)]
    pub(crate) fn over(backend: impl redb::StorageBackend) -> Self {
        let database = Database::builder().create_with_backend(backend).unwrap();
        set_up(&database).unwrap();
        Self { database, folder: "somewhere".into(), _lock: tempfile::tempfile().unwrap() }
    }

    /// Writes a batch, whole or not at all; it is on the disk when this returns.
    pub(crate) fn write(&self, batch: &Batch) -> Result<(), DataDirError> {
        write(&self.database, batch).map_err(|error| explain(&self.folder, error))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A version that cannot be what was written.
    pub(crate) fn damaged(&self, problem: &NotRestored) -> DataDirError {
        DataDirError::Damaged { folder: self.folder.clone(), problem: problem.to_string() }
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn unfinished(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}

/// Gives a file that is whole its name, for good.
fn finish(file: &Path) -> io::Result<()> {
    fs::rename(unfinished(file), file)?;
    sync_folder(file.parent())
}

/// Makes the names in a folder outlive a loss of power.
fn sync_folder(folder: Option<&Path>) -> io::Result<()> {
    // Elsewhere a folder cannot be opened; an empty path is the current one, which was there before.
    #[cfg(unix)]
    if let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty()) {
        File::open(folder)?.sync_all()?;
    }
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// Writes a file for its owner alone, whole or not at all.
pub(crate) fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut handle = private().truncate(true).open(unfinished(file))?;
    handle.write_all(text.as_bytes())?;
    handle.sync_all()?;
    finish(file)
}

fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    if folder.is_dir() {
        return Ok(());
    }
    builder.recursive(true).create(folder)?;
    sync_folder(folder.parent())
}

/// Secrets are in there: for the owner alone, whatever the mode was.
pub(crate) fn close_to_others(path: &Path, mode: u32) -> io::Result<()> {
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    #[cfg(not(unix))]
    let _nothing_to_close = (path, mode);
    Ok(())
}

/// Before the first use: a folder with other files in it was named by mistake.
fn refuse_foreign(folder: &Path) -> Result<(), DataDirError> {
    let unusable = |source| DataDirError::Io { folder: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(unusable)? {
        let file = entry.map_err(unusable)?.file_name().to_string_lossy().into_owned();
        if !OURS.contains(&file.trim_end_matches(UNFINISHED)) {
            return Err(DataDirError::Foreign { folder: folder.to_owned(), file });
        }
    }
    Ok(())
}

fn open(file: &Path) -> Result<Database, redb::Error> {
    let handle = private().open(file)?;
    Ok(Database::builder().set_cache_size(CACHE).create_file(handle)?)
}

/// The tables of a new database.
fn set_up(database: &Database) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(VERSIONS)?;
    transaction.open_table(DROPPED)?;
    transaction.open_table(STATE)?.insert("format", FORMAT)?;
    transaction.commit()?;
    Ok(())
}

fn read_format(database: &Database) -> Result<u64, redb::Error> {
    let state = database.begin_read()?.open_table(STATE)?;
    let format = state.get("format")?;
    format.map(|format| format.value()).ok_or_else(|| redb::Error::Corrupted("no format".to_owned()))
}

fn read(database: &Database) -> Result<Kept, redb::Error> {
    let transaction = database.begin_read()?;
    let state = transaction.open_table(STATE)?;
    let number = |name| Ok::<_, StorageError>(state.get(name)?.map(|number| number.value()));
    let mut kept = Kept::default();
    if let (Some(revision), Some(floor)) = (number("revision")?, number("floor")?) {
        kept.state = Some(State { revision, floor });
    }
    for row in transaction.open_table(DROPPED)?.iter()? {
        let (resource, revision) = row?;
        kept.dropped.insert(resource.value().to_owned(), revision.value());
    }
    for row in transaction.open_table(VERSIONS)?.iter()? {
        let (revision, row) = row?;
        let (resource, removed, head, text) = row.value();
        kept.versions.push(Version {
            revision: revision.value(),
            resource: resource.to_owned(),
            removed,
            head: usize::try_from(head).unwrap_or(usize::MAX),
            text: Bytes::copy_from_slice(text),
        });
    }
    Ok(kept)
}

fn write(database: &Database, batch: &Batch) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut versions = transaction.open_table(VERSIONS)?;
        for (id, stored, removed) in &batch.versions {
            versions.insert(stored.revision, (id.as_str(), *removed, stored.head as u64, &*stored.bytes))?;
        }
        for revision in &batch.forgotten {
            versions.remove(revision)?;
        }
        let mut dropped = transaction.open_table(DROPPED)?;
        for (id, reach) in &batch.resources {
            match reach {
                Reach::AsBefore => None,
                Reach::After(revision) => dropped.insert(id.as_str(), revision)?,
                Reach::Gone => dropped.remove(id.as_str())?,
            };
        }
        let mut state = transaction.open_table(STATE)?;
        state.insert("revision", batch.revision)?;
        state.insert("floor", batch.floor)?;
    }
    transaction.commit()?;
    Ok(())
}

/// What an error of the database means for the folder.
fn explain(folder: &Path, error: redb::Error) -> DataDirError {
    let folder = folder.to_owned();
    match error {
        redb::Error::DatabaseAlreadyOpen => DataDirError::InUse(folder),
        redb::Error::UpgradeRequired(found) => {
            DataDirError::Damaged { folder, problem: format!("its database has the old layout {found}") }
        }
        redb::Error::Io(source) if source.kind() == io::ErrorKind::InvalidData => {
            DataDirError::Damaged { folder, problem: source.to_string() }
        }
        redb::Error::Io(source) => DataDirError::Io { folder, source },
        error => DataDirError::Damaged { folder, problem: error.to_string() },
    }
}
