//! Files and folders that only their owner can access.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The suffix of a file that is being written. The file is renamed once it is complete.
pub(crate) const UNFINISHED: &str = ".new";

/// Returns open options that create files with access for the owner only.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Returns why a secret must not be stored at `path`, or `None` if the path is the user's own or does not exist.
pub(crate) fn problem(path: &Path, is_folder: bool) -> io::Result<Option<&'static str>> {
    // Drops a trailing slash, which would follow a symbolic link.
    let path: PathBuf = path.components().collect();
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    #[cfg(unix)]
    let is_own = std::os::unix::fs::MetadataExt::uid(&found) == rustix::process::geteuid().as_raw();
    #[cfg(not(unix))]
    let is_own = true;
    Ok(match () {
        () if found.is_symlink() => Some("is a symbolic link"),
        () if is_folder && !found.is_dir() => Some("is not a folder"),
        () if !is_folder && !found.is_file() => Some("is not a file"),
        () if !is_own => Some("belongs to another user"),
        () => None,
    })
}

/// Returns the temporary name of a file.
fn unfinished(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}

/// Creates `file` under its temporary name, replacing any file of that name.
///
/// Never opens an existing file: a link or a file planted by another user would receive the secret.
pub(crate) fn begin(file: &Path) -> io::Result<File> {
    let unfinished = unfinished(file);
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    options().create_new(true).open(unfinished)
}

/// Renames a complete file to its final name, durably.
pub(crate) fn finish(file: &Path) -> io::Result<()> {
    fs::rename(unfinished(file), file)?;
    sync_folder(file.parent())
}

/// Syncs a folder, so that renames in it survive a power loss.
fn sync_folder(folder: Option<&Path>) -> io::Result<()> {
    // Only Unix can open a folder. An empty path is the current folder.
    #[cfg(unix)]
    if let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty()) {
        File::open(folder)?.sync_all()?;
    }
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// Writes a file for its owner only, atomically.
pub(crate) fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut handle = begin(file)?;
    handle.write_all(text.as_bytes())?;
    handle.sync_all()?;
    finish(file)
}

/// Creates a folder for its owner only, if it does not exist.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    if folder.is_dir() {
        return Ok(());
    }
    builder.recursive(true).create(folder)?;
    sync_folder(folder.parent())
}

/// Restricts a path that holds secrets to its owner.
pub(crate) fn close_to_others(path: &Path, mode: u32) -> io::Result<()> {
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    #[cfg(not(unix))]
    let _nothing_to_close = (path, mode);
    Ok(())
}
