//! The corpus of the fuzzer passes the checks of the fuzz targets.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use std::panic::catch_unwind;
use std::path::Path;

#[path = "../../../fuzz/checks.rs"]
mod checks;

#[test]
fn every_file_of_the_corpus_passes_the_check_of_its_target() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut failed = Vec::new();
    for (target, check) in checks::ALL {
        let folder = corpus.join(target);
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        assert!(!paths.is_empty(), "{} is empty", folder.display());
        paths.sort();
        for path in paths {
            let data = std::fs::read(&path).unwrap();
            if catch_unwind(|| check(&data)).is_err() {
                failed.push(path);
            }
        }
    }
    assert!(failed.is_empty(), "these fail, each for the reason above: {failed:#?}");
}
