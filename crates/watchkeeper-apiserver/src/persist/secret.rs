//! The secret of a data directory with which service account tokens are signed.

use std::fs;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use watchkeeper::clock::Generator;

use crate::persist::disk::{DataDirError, SECRET_FILE};
use crate::persist::private::{close_to_others, write_private};

/// Reads the secret of a folder that is open; a missing one is generated and stored, for the owner only.
pub(crate) fn kept_in(folder: &Path, generator: &Generator) -> Result<[u8; 32], DataDirError> {
    let unusable = |source| DataDirError::Io { folder: folder.to_owned(), source };
    let file = folder.join(SECRET_FILE);
    let text = match fs::read(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut secret = [0; 32];
            generator.fill(&mut secret);
            write_private(&file, &format!("{}\n", URL_SAFE_NO_PAD.encode(secret))).map_err(unusable)?;
            return Ok(secret);
        }
        read => read.map_err(unusable)?,
    };
    close_to_others(&file, 0o600).map_err(unusable)?;
    let secret = URL_SAFE_NO_PAD.decode(text.trim_ascii()).ok().and_then(|bytes| bytes.try_into().ok());
    secret.ok_or_else(|| DataDirError::Damaged {
        folder: folder.to_owned(),
        problem: format!("the file {SECRET_FILE} has no key; remove it to generate a new one"),
    })
}
