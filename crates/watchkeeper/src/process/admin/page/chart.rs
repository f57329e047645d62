//! Small charts of the last minutes, as inline SVG.

use std::fmt::Write;

use maud::{Markup, html};

use super::samples::POINTS;

const WIDTH: f64 = (POINTS - 1) as f64;
const HEIGHT: f64 = 40.0;

/// A chart of `points`, the newest at the right edge, with its last value. `format` writes a value; `least` is the smallest
/// value that reaches the top, so that a little noise stays small.
pub(super) fn chart(
    name: &str,
    class: &str,
    points: &[f64],
    least: f64,
    format: impl Fn(f64) -> String,
) -> Markup {
    let now = points.last().copied().unwrap_or_default();
    let most = points.iter().copied().fold(0.0, f64::max);
    let label = if points.is_empty() {
        format!("{name}: no figures yet")
    } else {
        format!("{name}: now {}, at most {} in the last 10 minutes", format(now), format(most))
    };
    // A level course is not at the edge.
    let curve = curve(points, (most * 1.2).max(least));
    html! {
        figure class={ "chart " (class) } {
            figcaption { span { (name) } b { @if points.is_empty() { "–" } @else { (format(now)) } } }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(label) {
                line class="base" x1="0" y1=(HEIGHT) x2=(WIDTH) y2=(HEIGHT) {}
                @if points.len() > 1 {
                    path class="area" d={ (curve) "V" (HEIGHT) "H" (WIDTH - (points.len() - 1) as f64) "Z" } {}
                    path class="curve" d=(curve) {}
                }
            }
        }
    }
}

fn curve(points: &[f64], top: f64) -> String {
    let mut path = String::with_capacity(points.len() * 8);
    for (at, point) in points.iter().enumerate() {
        let x = WIDTH - (points.len() - 1 - at) as f64;
        let y = HEIGHT * (1.0 - point / top);
        // A `String` takes everything.
        let _ok = write!(path, "{}{x} {y:.1}", if at == 0 { 'M' } else { 'L' });
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_point_is_at_the_right_and_the_highest_at_the_top() {
        assert_eq!(curve(&[0.0, 5.0, 10.0], 10.0), "M117 40.0L118 20.0L119 0.0");
    }

    #[test]
    fn a_chart_tells_its_figures_to_those_who_do_not_see_it() {
        let html = chart("Waiting", "wait", &[3.0, 1.0], 1.0, |value| format!("{value}")).into_string();
        assert!(html.contains(r#"aria-label="Waiting: now 1, at most 3 in the last 10 minutes""#), "{html}");
        let html = chart("Waiting", "wait", &[], 1.0, |value| format!("{value}")).into_string();
        assert!(html.contains("no figures yet") && !html.contains("<path"), "{html}");
    }
}
