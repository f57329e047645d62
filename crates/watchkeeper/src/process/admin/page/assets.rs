//! The files of the page, which are part of the program.

use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};

use super::respond::{Body, answer};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const ICON: &str = include_str!("icon.svg");

/// A number that changes with the files, as they are kept by browsers.
pub(super) const VERSION: u32 = digest(SCRIPT, digest(STYLE, digest(ICON, 0x811c_9dc5)));

/// Returns the file at `path`.
pub(super) fn file(path: &str) -> Option<Response<Body>> {
    let (text, content_type) = match path {
        "/page.css" => (STYLE, "text/css; charset=utf-8"),
        "/page.js" => (SCRIPT, "text/javascript; charset=utf-8"),
        "/page.svg" => (ICON, "image/svg+xml"),
        _ => return None,
    };
    Some(answer(StatusCode::OK, content_type, "private, max-age=86400", Full::from(text).boxed_unsync()))
}

/// FNV-1a.
const fn digest(text: &str, start: u32) -> u32 {
    let (bytes, mut hash, mut at) = (text.as_bytes(), start, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash
}
