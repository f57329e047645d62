//! Text in aligned columns, cut and folded to the width of a terminal.

use anstyle::Style;

use crate::front::DIM;

pub(crate) type Cell = (Style, String);

pub(crate) fn heading(names: &[&str]) -> Vec<Cell> {
    names.iter().map(|name| (DIM, (*name).to_owned())).collect()
}

/// Cells in columns, each as wide as its widest cell; the last column is not padded.
pub(crate) fn table(rows: Vec<Vec<Cell>>) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.1.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: Vec<Cell>| {
        let last = row.len().saturating_sub(1);
        let cells = row.into_iter().enumerate().map(|(column, (style, text))| {
            let width = if column == last { 0 } else { widths[column] + 2 };
            let padding = " ".repeat(width.saturating_sub(text.chars().count()));
            match text.is_empty() {
                true => padding,
                false => format!("{style}{text}{style:#}{padding}"),
            }
        });
        cells.collect()
    };
    rows.clone().into_iter().map(line).collect()
}

/// A name, truncated to `width`.
pub(crate) fn cut(name: &str, width: usize) -> String {
    match name.char_indices().nth(width) {
        None => name.to_owned(),
        Some(_) => name.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// A command, folded with backslashes into lines that fit the terminal with their margin.
pub(crate) fn folded(command: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in command.split(' ') {
        let line = &mut lines[0];
        // Room for the margin, the space and the backslash.
        if !line.is_empty() && line.chars().count() + word.chars().count() + 5 > width {
            line.push_str(" \\");
            lines.insert(0, format!("  {word}"));
        } else {
            line.extend(if line.is_empty() { vec![word] } else { vec![" ", word] });
        }
    }
    lines.reverse();
    lines
}

/// Text from others, without control characters.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_too_wide_is_folded_as_a_shell_takes_it() {
        assert_eq!(folded("kubectl get foos", 80), ["kubectl get foos"]);
        assert_eq!(
            folded("kubectl --kubeconfig f get foos", 28),
            ["kubectl --kubeconfig f \\", "  get foos"]
        );
        assert_eq!(folded("kubectl get foos", 3), ["kubectl \\", "  get \\", "  foos"]);
    }

    #[test]
    fn what_others_write_does_not_steer_the_terminal() {
        assert_eq!(printable("a \u{1b}[2Jb\nc ×"), "a \u{fffd}[2Jb\u{fffd}c ×");
    }
}
