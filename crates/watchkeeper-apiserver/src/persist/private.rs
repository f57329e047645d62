//! Files and folders that are for one user alone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// What a file in the making has behind its name: it gets its name once it is whole.
pub(crate) const UNFINISHED: &str = ".new";

/// How a file of ours is opened; one that is created is for its owner alone.
pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Why a secret should not be kept at `path`; none if it is this user's own, or not there yet.
pub(crate) fn problem(path: &Path, is_folder: bool) -> io::Result<Option<&'static str>> {
    // Without a slash behind its name: that would be followed.
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

/// The name under which a file is made.
fn unfinished(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}

/// Creates `file` under its unfinished name, in place of whatever has that name.
///
/// Nothing that is there is opened: a link or a file of another user, planted while the folder was open to others, would receive the secret.
pub(crate) fn begin(file: &Path) -> io::Result<File> {
    let unfinished = unfinished(file);
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    options().create_new(true).open(unfinished)
}

/// Gives a file that is whole its name, for good.
pub(crate) fn finish(file: &Path) -> io::Result<()> {
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
    let mut handle = begin(file)?;
    handle.write_all(text.as_bytes())?;
    handle.sync_all()?;
    finish(file)
}

/// Makes a folder for its owner alone, unless there is one.
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

/// Secrets are in there: for the owner alone, whatever the mode was.
pub(crate) fn close_to_others(path: &Path, mode: u32) -> io::Result<()> {
    #[cfg(unix)]
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    #[cfg(not(unix))]
    let _nothing_to_close = (path, mode);
    Ok(())
}
