//! Terminal output: lines that stay, and below them a live view that is redrawn in place, on a terminal only.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use parking_lot::Mutex;

/// Standard output, for lines and a live view. Clones share the screen.
#[derive(Clone)]
pub(crate) struct Screen(Arc<Mutex<Inner>>);

struct Inner {
    out: Box<dyn Write + Send>,
    colours: bool,
    /// Whether it is a terminal that can show the live view.
    live: bool,
    /// The view below the last line; every line ends with a newline.
    picture: String,
}

impl Screen {
    /// `NO_COLOR` is respected, and so are `CLICOLOR` and `TERM=dumb`.
    pub(crate) fn stdout() -> Self {
        let out = io::stdout();
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        let (live, colours) = (out.is_terminal() && !is_dumb, AutoStream::choice(&out) != ColorChoice::Never);
        Self::new(Box::new(out), live, colours)
    }

    fn new(out: Box<dyn Write + Send>, live: bool, colours: bool) -> Self {
        Self(Arc::new(Mutex::new(Inner { out, colours, live, picture: String::new() })))
    }

    /// Whether the live view is shown.
    pub(crate) fn is_live(&self) -> bool {
        self.0.lock().live
    }

    /// Prints a line that stays, above the view.
    pub(crate) fn line(&self, text: &str) {
        self.line_of(|| text.to_owned());
    }

    /// Prints a line that is created under the lock, so that timestamps are in order.
    pub(crate) fn line_of(&self, text: impl FnOnce() -> String) {
        let mut inner = self.0.lock();
        let text = format!("{}\n", inner.coloured(&text()));
        inner.above(&text);
    }

    /// Replaces the view by `lines`. Lines at the top, and the ends of lines, are cut to fit the terminal.
    pub(crate) fn draw(&self, lines: &[String]) {
        let (width, height) = Self::size();
        self.draw_within(width, height, lines);
    }

    /// The columns and rows of the terminal.
    pub(crate) fn size() -> (usize, usize) {
        terminal_size::terminal_size().map_or((80, 24), |(width, height)| (width.0.into(), height.0.into()))
    }

    fn draw_within(&self, width: usize, height: usize, lines: &[String]) {
        let mut inner = self.0.lock();
        let fitting = &lines[lines.len().saturating_sub(height.saturating_sub(1))..];
        let picture: String =
            fitting.iter().map(|line| format!("{}\n", inner.coloured(&clipped(line, width)))).collect();
        if inner.live && picture != inner.picture {
            let old = std::mem::replace(&mut inner.picture, picture);
            inner.redraw(&old, "");
        }
    }

    /// A writer of log lines to standard error, which may be the same terminal.
    pub(crate) fn log(&self) -> LogWriter {
        LogWriter(self.clone())
    }
}

impl Inner {
    fn coloured(&self, text: &str) -> String {
        if self.colours { text.to_owned() } else { strip_str(text).to_string() }
    }

    /// Prints `text` above the view.
    fn above(&mut self, text: &str) {
        let old = self.picture.clone();
        self.redraw(&old, text);
    }

    fn redraw(&mut self, old: &str, text: &str) {
        let erase = match old.lines().count() {
            0 => String::new(),
            rows => format!("\r\x1b[{rows}A\x1b[J"),
        };
        let whole = format!("{erase}{text}{}", self.picture);
        // A closed pipe is no error.
        let _closed = self.out.write_all(whole.as_bytes()).and_then(|()| self.out.flush());
    }
}

/// The part of a line that fits into one row. Escape sequences take no room and are kept.
fn clipped(line: &str, width: usize) -> String {
    let (mut room, mut in_style) = (width, false);
    let fits = |c: &char| {
        in_style |= *c == '\x1b';
        if in_style {
            in_style = *c != 'm';
            return true;
        }
        let fits = room > 0;
        room = room.saturating_sub(1);
        fits
    };
    line.chars().filter(fits).collect()
}

/// Writes log lines above the view.
pub(crate) struct LogWriter(Screen);

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut inner = self.0.0.lock();
        if inner.live && io::stderr().is_terminal() {
            inner.above(&String::from_utf8_lossy(bytes));
        } else {
            io::stderr().write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::GREEN;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Paper {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().clone()).unwrap()
        }

        /// What a terminal shows after all that was written.
        fn rows(&self) -> Vec<String> {
            let mut rows = vec![String::new()];
            for piece in self.text().split('\x1b') {
                let (code, rest) = match piece.strip_prefix('[') {
                    None => ("", piece),
                    Some(piece) => piece.split_at(piece.find(|c: char| c.is_ascii_alphabetic()).unwrap() + 1),
                };
                if let Some(up) = code.strip_suffix('A') {
                    let up: usize = up.parse().unwrap();
                    rows.truncate(rows.len() - up);
                    rows.last_mut().unwrap().clear();
                }
                for c in rest.chars() {
                    match c {
                        '\n' => rows.push(String::new()),
                        '\r' => {}
                        c => rows.last_mut().unwrap().push(c),
                    }
                }
            }
            rows
        }
    }

    fn screen(live: bool, colours: bool) -> (Screen, Paper) {
        let paper = Paper::default();
        (Screen::new(Box::new(paper.clone()), live, colours), paper)
    }

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_stay_and_the_picture_stands_below_them() {
        let (screen, paper) = screen(true, false);
        screen.line("one");
        screen.draw(&lines(&["a", "b"]));
        screen.line("two");
        screen.draw(&lines(&["a", "b", "c"]));
        screen.draw(&lines(&["d"]));
        screen.line("three");
        assert_eq!(paper.rows(), ["one", "two", "three", "d", ""]);
    }

    #[test]
    fn what_does_not_fit_is_left_out_so_that_a_line_is_a_row() {
        let (screen, paper) = screen(true, true);
        screen.draw_within(3, 3, &[String::new(), "abc".to_owned(), format!("{GREEN}äbcd{GREEN:#}")]);
        assert_eq!(paper.text(), format!("abc\n{GREEN}äbc{GREEN:#}\n"));
    }

    #[test]
    fn a_picture_that_has_not_changed_is_not_drawn_again() {
        let (screen, paper) = screen(true, false);
        screen.draw(&lines(&["a"]));
        let before = paper.text();
        screen.draw(&lines(&["a"]));
        assert_eq!(paper.text(), before);
    }

    #[test]
    fn where_there_is_no_terminal_there_are_only_lines() {
        let (screen, paper) = screen(false, false);
        screen.draw(&lines(&["a", "b"]));
        screen.line(&format!("{GREEN}one{GREEN:#}"));
        assert_eq!(paper.text(), "one\n");
    }

    #[test]
    fn without_colours_the_picture_is_still_drawn_anew() {
        let (screen, paper) = screen(true, false);
        screen.draw(&lines(&["a"]));
        screen.draw(&[format!("{GREEN}b{GREEN:#}")]);
        assert!(!paper.text().contains("\x1b[1m"), "{:?}", paper.text());
        assert_eq!(paper.rows(), ["b", ""]);
    }
}
