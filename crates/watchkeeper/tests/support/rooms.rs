//! The order of a crate's top-level modules ("rooms"), read from a page, and the imports of its sources, checked
//! against it.
//!
//! Test programs of several crates include this file. A room is a folder or file directly under `src`. It may import
//! the rooms before it in the table, never those after it.
#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(dead_code, reason = "not every test program uses all of it")]

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

/// An import that breaks the order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Breach {
    /// The file, relative to `src`.
    pub(crate) file: String,
    pub(crate) line: usize,
    /// What it imports, as seen from the root of the crate.
    pub(crate) import: String,
    /// Why it must not.
    pub(crate) why: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, import, why } = self;
        write!(f, "{file}:{line}: imports {import}, {why}")
    }
}

/// The rooms of the table behind the line `<!-- rooms: NAME -->` of a page, first to last.
///
/// They are the words in backticks of the first column, without `/` and `.rs`; a row may have several.
pub(crate) fn rooms_of_table(page: &str, name: &str) -> Vec<String> {
    let marker = format!("<!-- rooms: {name} -->");
    let lines = page.lines().skip_while(|line| line.trim() != marker).skip(1);
    let table = lines.skip_while(|line| line.trim().is_empty()).take_while(|line| line.starts_with('|'));
    table.filter_map(|row| row.split('|').nth(1)).flat_map(names_in).collect()
}

/// The words in backticks of `text`, without `/` and `.rs`.
pub(crate) fn names_in(text: &str) -> Vec<String> {
    let words = text.split('`').skip(1).step_by(2);
    words.map(|word| word.trim_end_matches('/').trim_end_matches(".rs").to_owned()).collect()
}

/// Whether those of `mentioned` that are rooms come in the order of `rooms`, by their first mention, and all are there.
pub(crate) fn mentions_all_in_order(mentioned: &[String], rooms: &[String]) -> bool {
    let mut seen = BTreeSet::new();
    mentioned.iter().filter(|name| rooms.contains(name) && seen.insert(*name)).eq(rooms)
}

/// The rooms that there are: what lies directly in `src`, but for the roots of library and program.
pub(crate) fn rooms_of_folder(src: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(src).unwrap().map(|entry| entry.unwrap().path());
    let stems = entries.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
    stems.filter(|stem| stem != "lib" && stem != "main").collect()
}

/// All breaches in the files below `src`.
pub(crate) fn breaches(src: &Path, rooms: &[String]) -> Vec<Breach> {
    let mut found = Vec::new();
    visit(src, src, &mut |path, text| found.extend(breaches_in(path, text, rooms)));
    found.sort();
    found
}

fn visit(src: &Path, folder: &Path, each: &mut dyn FnMut(&str, &str)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            visit(src, &path, each);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = path.strip_prefix(src).unwrap().to_str().unwrap().to_owned();
            each(&file, &fs::read_to_string(&path).unwrap());
        }
    }
}

/// The breaches in one file, `file` being its path below `src`. The roots of library and program may import everything.
pub(crate) fn breaches_in(file: &str, text: &str, rooms: &[String]) -> Vec<Breach> {
    let module = module_of(file);
    let Some(own) = module.first() else { return Vec::new() };
    let place = |room: &str| rooms.iter().position(|name| name == room);
    let breach = |import: &Import, why: String| Breach {
        file: file.to_owned(),
        line: import.line,
        import: import.name.clone(),
        why,
    };
    let Some(here) = place(own) else {
        let import = Import { line: 1, name: own.clone() };
        return vec![breach(&import, "and is itself a room that the table does not have".to_owned())];
    };
    let check = |import: &Import| match place(&import.name) {
        None => Some(breach(import, "which is no room: name the room it comes from".to_owned())),
        Some(there) if there > here => Some(breach(import, format!("a room behind `{own}`"))),
        Some(_) => None,
    };
    imports(text, &module).iter().filter_map(check).collect()
}

/// The module that a file is, from the root of the crate; empty for the root itself.
fn module_of(file: &str) -> Vec<String> {
    let mut parts: Vec<_> = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| last == "mod")
        || matches!(&parts[..], [only] if only == "lib" || only == "main")
    {
        parts.pop();
    }
    parts
}

/// Something directly below the root of the crate that a path names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Import {
    pub(crate) line: usize,
    pub(crate) name: String,
}

/// What the paths in `text` name below the root, where `text` is that of `module`: those that start with `crate::`, and
/// those that start with so many `super::` that they come there. In `use` and inline alike; not in comments and
/// literals.
pub(crate) fn imports(text: &str, module: &[String]) -> Vec<Import> {
    let tokens = tokens(text);
    let mut scan = Scan { tokens: &tokens, at: 0, found: Vec::new() };
    // The inline modules that are open, each with the depth of braces at which it closes.
    let (mut inline, mut depth) = (Vec::<(String, usize)>::new(), 0);
    while let Some(token) = tokens.get(scan.at) {
        let here = || module.iter().cloned().chain(inline.iter().map(|(name, _)| name.clone())).collect();
        let continues = scan.text(1) == Some("::");
        match token.text {
            "mod" if scan.text(2) == Some("{") => {
                inline.push((scan.text(1).unwrap_or_default().to_owned(), depth));
                depth += 1;
                scan.at += 3;
            }
            "{" => (depth, scan.at) = (depth + 1, scan.at + 1),
            "}" => {
                depth = usize::saturating_sub(depth, 1);
                inline.pop_if(|(_, closes)| *closes == depth);
                scan.at += 1;
            }
            "crate" if continues => {
                scan.at += 2;
                scan.path(Vec::new());
            }
            "super" if continues => scan.path(here()),
            _ => scan.at += 1,
        }
    }
    scan.found
}

struct Scan<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    found: Vec<Import>,
}

impl Scan<'_> {
    fn text(&self, ahead: usize) -> Option<&str> {
        self.tokens.get(self.at + ahead).map(|token| token.text)
    }

    /// Reads a path, or a group of them, that starts in the module `base`.
    fn path(&mut self, mut base: Vec<String>) {
        while let Some(token) = self.tokens.get(self.at) {
            match token.text {
                "{" => return self.group(&base),
                "self" => {}
                "super" => _ = base.pop(),
                // All of the root: that is no room, and says so.
                name if base.is_empty() => {
                    self.found.push(Import { line: token.line, name: name.to_owned() });
                    base.push(name.to_owned());
                }
                name => base.push(name.to_owned()),
            }
            self.at += 1;
            if self.text(0) != Some("::") {
                return;
            }
            self.at += 1;
        }
    }

    fn group(&mut self, base: &[String]) {
        self.at += 1;
        while let Some(text) = self.text(0) {
            match text {
                "}" => {
                    self.at += 1;
                    return;
                }
                "," => self.at += 1,
                "as" => self.at += 2,
                _ => self.path(base.to_vec()),
            }
        }
    }
}

struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// The words and signs of a source text, without blanks, comments and literals.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let (mut tokens, mut rest, mut line) = (Vec::new(), text, 1);
    while let Some(first) = rest.chars().next() {
        let skipped = blank(rest);
        let length = match skipped {
            0 if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            0 if rest.starts_with("::") => 2,
            0 => first.len_utf8(),
            skipped => skipped,
        };
        let (taken, behind) = rest.split_at(length);
        if skipped == 0 {
            tokens.push(Token { text: taken, line });
        }
        line += taken.matches('\n').count();
        rest = behind;
    }
    tokens
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of the blank, comment or literal that `text` starts with; zero for anything else.
fn blank(text: &str) -> usize {
    let upto = |found: Option<usize>, sign: &str| found.map_or(text.len(), |at| at + sign.len());
    let raw = text.trim_start_matches(['b', 'c']);
    if text.starts_with(char::is_whitespace) {
        text.find(|c: char| !c.is_whitespace()).unwrap_or(text.len())
    } else if text.starts_with("//") {
        upto(text.find('\n'), "\n")
    } else if text.starts_with("/*") {
        block_comment(text)
    } else if raw.starts_with("r\"")
        || raw.starts_with("r#") && raw.trim_start_matches(['r', '#']).starts_with('"')
    {
        let signs = raw[1..].find('"').unwrap_or(0);
        let end = format!("\"{}", "#".repeat(signs));
        let start = text.len() - raw.len() + signs + 2;
        upto(text[start..].find(&end).map(|at| at + start), &end)
    } else if raw.starts_with('"') && text.len() - raw.len() <= 1 {
        let start = text.len() - raw.len() + 1;
        start + quoted(&text[start..], '"')
    } else if is_char(text) {
        1 + quoted(&text[1..], '\'')
    } else {
        0
    }
}

/// Whether `text` starts with a literal of one character, which a lifetime does not.
fn is_char(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next() == Some('\'') && (chars.next() == Some('\\') || chars.next() == Some('\''))
}

/// The length of a literal behind its opening `quote`.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// The length of a comment between `/*` and `*/`, which may hold others.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text[at..];
        let sign = if rest.starts_with("/*") {
            depth += 1;
            2
        } else if rest.starts_with("*/") {
            depth -= 1;
            2
        } else {
            rest.chars().next().map_or(1, char::len_utf8)
        };
        at += sign;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}
