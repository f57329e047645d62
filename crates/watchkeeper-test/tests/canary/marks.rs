//! The marks of secrets, and how they are recognized.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE};

/// The data of Secrets.
pub(crate) const SECRET: &str = "canary-secret-data-q7Zx";
/// Data of Secrets that cannot be read.
pub(crate) const UNREADABLE: &str = "canary-unreadable-data-m3Kd";
/// A body that is not what was asked for.
pub(crate) const BODY: &str = "canary-foreign-body-w8Pe";
/// The bearer token of the API server.
pub(crate) const TOKEN: &str = "canary-bearer-token-t5Yu";
/// The token of somebody who reads the metrics.
pub(crate) const SCRAPER: &str = "canary-scraper-token-b2Hn";
/// A token that the API server refuses.
pub(crate) const REFUSED: &str = "canary-refused-token-v4Rf";
pub(crate) const PASSWORD: &str = "canary-password-c9Lg";
pub(crate) const KEY: &str = "canary-client-key-z6Wd";
/// What credential plugins print, are given, and write to their log.
pub(crate) const EXEC: &str = "canary-exec-token-k1Js";
pub(crate) const REFRESH: &str = "canary-refresh-token-n8Va";
pub(crate) const ID_TOKEN: &str = "canary-id-token-x2Fo";
pub(crate) const CLIENT_SECRET: &str = "canary-client-secret-h7Ci";

const ALL: [&str; 12] = [
    SECRET,
    UNREADABLE,
    BODY,
    TOKEN,
    SCRAPER,
    REFUSED,
    PASSWORD,
    KEY,
    EXEC,
    REFRESH,
    ID_TOKEN,
    CLIENT_SECRET,
];

/// A mark in base64, as in a Secret.
pub(crate) fn encoded(mark: &str) -> String {
    BASE64_STANDARD.encode(mark)
}

/// The marks of a private key that was made for this run: each line of its PEM body, and its bytes.
pub(crate) fn of_key(pem: &str, der: &[u8]) -> Vec<String> {
    // The last line may be too short to be a mark.
    let body = pem.lines().filter(|line| !line.starts_with("-----") && line.len() > 20).map(str::to_owned);
    let bytes = der[der.len() - 24..].iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
    body.chain([bytes]).collect()
}

/// Returns the line with its mark in front, if it has one: as it is, or within something in base64.
pub(crate) fn leak(line: &str) -> Option<String> {
    leak_of(line, &[])
}

/// As [`leak`], with more marks.
pub(crate) fn leak_of(line: &str, more: &[String]) -> Option<String> {
    let mut marks = ALL.into_iter().chain(more.iter().map(String::as_str));
    let found = marks.find(|mark| forms(mark).iter().any(|form| line.contains(form)))?;
    let line: String = line.chars().take(2000).collect();
    Some(format!("[{found}] {line}"))
}

/// A mark as it is, and the part of its base64 that does not depend on what is around it, at each offset.
fn forms(mark: &str) -> Vec<String> {
    let mut forms = vec![
        mark.to_owned(),
        mark.to_uppercase(),
        mark.replace('-', "%2D"),
        format!("{:?}", mark.as_bytes()),
    ];
    forms[3] = forms[3].trim_matches(['[', ']']).to_owned();
    for offset in 0..3 {
        let padded = [vec![0; offset], mark.as_bytes().to_vec()].concat();
        let (first, last) = ((offset * 8).div_ceil(6), padded.len() * 8 / 6);
        forms.extend(
            [&BASE64_STANDARD, &BASE64_URL_SAFE].map(|engine| engine.encode(&padded)[first..last].to_owned()),
        );
    }
    forms
}

#[test]
fn a_mark_is_recognized_in_every_form() {
    for around in ["", "a", "ab", "abc", "abcd"] {
        let text = BASE64_STANDARD.encode(format!("{around}{SECRET}{around}"));
        assert!(leak(&format!("x {text} y")).is_some(), "{around}");
    }
    assert!(leak(&format!("{:?}", SECRET.as_bytes())).is_some());
    assert_eq!(leak("canary-secret-data"), None);
}
