//! Lines about objects, with the time since the start in front.

use anstyle::Style;
use k8s_openapi::api::core::v1::Event;
use watchkeeper::clock::{Clock, Instant};

use crate::columns::printable;
use crate::front::{CYAN, DIM, YELLOW};
use crate::screen::Screen;

/// Writes lines with the time in front. Clones write to the same screen.
#[derive(Clone)]
pub(crate) struct Pen {
    pub(crate) screen: Screen,
    pub(crate) clock: Clock,
    began: Instant,
}

impl Pen {
    pub(crate) fn new(screen: &Screen, clock: &Clock) -> Self {
        Self { screen: screen.clone(), clock: clock.clone(), began: clock.now() }
    }

    pub(crate) fn write(&self, kind: &str, about: &str, style: Style, text: &str) {
        self.screen.line_of(|| {
            let seconds = (self.clock.now() - self.began).as_secs_f64();
            format!(
                "{DIM}{seconds:>8.3}s{DIM:#}  {CYAN}{kind:<10}{CYAN:#}  {about:<28}  {style}{text}{style:#}"
            )
        });
    }
}

/// An event in one line, with the number of its repetitions.
pub(crate) fn event(event: &Event) -> (Style, String) {
    let (kind, reason) = (event.type_.as_deref().unwrap_or(""), event.reason.as_deref().unwrap_or(""));
    let style = if kind == "Warning" { YELLOW } else { Style::new() };
    let times = match event.count {
        Some(count) if count > 1 => format!(" (×{count})"),
        _ => String::new(),
    };
    (style, printable(&format!("{kind} {reason}: {}{times}", event.message.as_deref().unwrap_or(""))))
}
