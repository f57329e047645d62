//! Figures as SVG, with colours that follow the reader's light or dark theme.

use std::fmt::Write;

/// A graph with its axes.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

/// An axis: what it shows, and from where to where.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    label: &'static str,
    is_log: bool,
    ticks: Vec<f64>,
}

/// Points that belong together.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    name: &'static str,
    points: Vec<(f64, f64)>,
    /// What is written beside each point.
    notes: Vec<String>,
    is_reference: bool,
}

impl Axis {
    /// From a power of ten to another one, so that all positive values are within.
    pub(crate) fn log(label: &'static str, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = bounds(values.filter(|value| *value > 0.0).map(f64::log10));
        let (low, high) = (low.floor() as i32, (high.ceil() as i32).max(low.floor() as i32 + 1));
        Self { label, is_log: true, ticks: (low..=high).map(|power| 10_f64.powi(power)).collect() }
    }

    /// From zero, in round steps, so that all values are within.
    pub(crate) fn linear(label: &'static str, values: impl Iterator<Item = f64>) -> Self {
        let (_, high) = bounds(values);
        let high = if high > 0.0 { high } else { 1.0 };
        let power = 10_f64.powf((high / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| step * 5.0 >= high);
        let step = step.unwrap_or(10.0 * power);
        let steps = (high / step).ceil() as u32;
        Self { label, is_log: false, ticks: (0..=steps).map(|count| f64::from(count) * step).collect() }
    }

    /// Where a value is, from 0 at the beginning to 1 at the end.
    fn place(&self, value: f64) -> f64 {
        let scaled = |value: f64| if self.is_log { value.log10() } else { value };
        let (low, high) = (scaled(self.ticks[0]), scaled(self.ticks[self.ticks.len() - 1]));
        (scaled(value) - low) / (high - low)
    }
}

/// The least and the greatest; zero and zero without any.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.map(|value| (value, value)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or_default()
}

impl Series {
    /// Points that were measured.
    pub(crate) fn measured(name: &'static str, points: impl Iterator<Item = (f64, f64)>) -> Self {
        Self { name, points: points.collect(), notes: Vec::new(), is_reference: false }
    }

    /// With a note beside each point.
    pub(crate) fn notes(mut self, notes: impl Iterator<Item = String>) -> Self {
        self.notes = notes.collect();
        self
    }

    /// What it would be if it were proportional to x, and as it is at the last point.
    pub(crate) fn proportional(&self, name: &'static str) -> Self {
        let (last_x, last_y) = self.points.last().copied().unwrap_or((1.0, 1.0));
        let points = self.points.iter().map(|(x, _)| (*x, last_y * x / last_x)).collect();
        Self { name, points, notes: Vec::new(), is_reference: true }
    }

    pub(crate) fn xs(&self) -> impl Iterator<Item = f64> {
        self.points.iter().map(|(x, _)| *x)
    }

    pub(crate) fn ys(&self) -> impl Iterator<Item = f64> {
        self.points.iter().map(|(_, y)| *y)
    }
}

/// The whole figure is as wide as a page of documentation,
const WIDTH: f64 = 840.0;
/// and so high.
const HEIGHT: f64 = 360.0;

// Without variables, which not every viewer knows.
const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600;font-size:14px}.note{font-size:11px}\
.paper{fill:#fff}.grid{stroke:#d1d9e0}polyline{fill:none;stroke-width:2}\
polyline.one{stroke:#0969da}circle.one{fill:#0969da}polyline.two{stroke:#bc4c00}circle.two{fill:#bc4c00}\
polyline.reference{stroke:#656d76;stroke-dasharray:5 4}.end{text-anchor:end}.middle{text-anchor:middle}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.paper{fill:#0d1117}.grid{stroke:#30363d}\
polyline.one{stroke:#58a6ff}circle.one{fill:#58a6ff}polyline.two{stroke:#ffa657}circle.two{fill:#ffa657}polyline.reference{stroke:#8d96a0}}";

/// The panels side by side.
pub(crate) fn svg(panels: &[Panel]) -> String {
    let mut out = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img"><style>{STYLE}</style><rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>"#
    );
    let width = WIDTH / panels.len().max(1) as f64;
    for (index, panel) in panels.iter().enumerate() {
        // A String takes everything it is given.
        let _ = panel.draw(&mut out, Frame::new(index as f64 * width, width));
    }
    out.push_str("</svg>\n");
    out
}

/// The rectangle that a panel's points are in.
#[derive(Clone, Copy, Debug)]
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Frame {
    /// With room for the labels around it.
    fn new(left: f64, width: f64) -> Self {
        Self { left: left + 64.0, right: left + width - 40.0, top: 56.0, bottom: HEIGHT - 52.0 }
    }

    fn x(&self, axis: &Axis, value: f64) -> f64 {
        self.left + (self.right - self.left) * axis.place(value)
    }

    /// Up is less in SVG.
    fn y(&self, axis: &Axis, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * axis.place(value)
    }
}

impl Panel {
    fn draw(&self, out: &mut String, frame: Frame) -> std::fmt::Result {
        let Frame { left, right, top, bottom } = frame;
        write!(out, "\n<text class=\"title\" x=\"{left}\" y=\"24\">{}</text>", self.title)?;
        for tick in &self.x.ticks {
            let x = frame.x(&self.x, *tick);
            write!(out, "\n<path class=\"grid\" d=\"M{x:.1} {top}V{bottom}\"/>")?;
            write!(
                out,
                "<text class=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                bottom + 18.0,
                number(*tick)
            )?;
        }
        for tick in &self.y.ticks {
            let y = frame.y(&self.y, *tick);
            write!(out, "\n<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/>")?;
            write!(
                out,
                "<text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                left - 8.0,
                y + 4.0,
                number(*tick)
            )?;
        }
        let middle = (left + right) / 2.0;
        write!(
            out,
            "\n<text class=\"middle\" x=\"{middle:.1}\" y=\"{:.1}\">{}</text>",
            bottom + 38.0,
            self.x.label
        )?;
        write!(
            out,
            "<text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            left - 8.0,
            top - 14.0,
            self.y.label
        )?;
        let mut colours = ["one", "two"].into_iter().cycle();
        let mut legend = left + 12.0;
        for series in &self.series {
            let class = if series.is_reference { "reference" } else { colours.next().unwrap_or_default() };
            self.draw_series(out, frame, series, class)?;
            let y = top - 18.0;
            write!(out, "<polyline class=\"{class}\" points=\"{legend},{y} {},{y}\"/>", legend + 24.0)?;
            write!(out, "<text x=\"{}\" y=\"{}\">{}</text>", legend + 30.0, y + 4.0, series.name)?;
            legend += 60.0 + 7.0 * series.name.len() as f64;
        }
        Ok(())
    }

    fn draw_series(&self, out: &mut String, frame: Frame, series: &Series, class: &str) -> std::fmt::Result {
        let places: Vec<_> =
            series.points.iter().map(|(x, y)| (frame.x(&self.x, *x), frame.y(&self.y, *y))).collect();
        write!(out, "\n<polyline class=\"{class}\" points=\"")?;
        for (x, y) in &places {
            write!(out, "{x:.1},{y:.1} ")?;
        }
        write!(out, "\"/>")?;
        for (x, y) in places.iter().filter(|_| !series.is_reference) {
            write!(out, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>")?;
        }
        for ((x, y), note) in places.iter().zip(&series.notes) {
            // Below the line where there is room to the right, else above it: the line rises.
            let is_left = *x < (frame.left + frame.right) / 2.0;
            let (class, dx, dy) = if is_left { ("note", 8.0, 14.0) } else { ("note end", -8.0, -6.0) };
            let y = (y + dy).min(frame.bottom - 6.0);
            write!(out, "<text class=\"{class}\" x=\"{:.1}\" y=\"{y:.1}\">{note}</text>", x + dx)?;
        }
        Ok(())
    }
}

/// A number as text: as short as it can be, with commas between thousands.
pub(crate) fn number(value: f64) -> String {
    if value < 1.0 {
        return format!("{}", (value * 1e9).round() / 1e9);
    }
    let digits = format!("{value:.0}");
    if digits.parse() != Ok(value) {
        return format!("{value}");
    }
    let commas = |(index, digit): (usize, char)| {
        let left = digits.len() - index;
        (index > 0 && left.is_multiple_of(3)).then_some(',').into_iter().chain([digit])
    };
    digits.chars().enumerate().flat_map(commas).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_axis_goes_from_a_power_of_ten_to_another() {
        let axis = Axis::log("s", [0.02, 300.0].into_iter());
        assert_eq!(axis.ticks, [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]);
        assert_eq!([0.01, 1000.0].map(|value| axis.place(value)), [0.0, 1.0]);
        assert!((axis.place(10.0) - 0.6).abs() < 1e-9);
        assert_eq!(Axis::log("s", [100.0, 1000.0].into_iter()).ticks, [100.0, 1000.0]);
        assert_eq!(Axis::log("s", [100.0].into_iter()).ticks, [100.0, 1000.0]);
    }

    #[test]
    fn a_linear_axis_begins_at_zero_and_has_round_steps() {
        let axis = Axis::linear("MB", [37.0, 41.0].into_iter());
        assert_eq!(axis.ticks, [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(axis.place(25.0), 0.5);
        assert_eq!(Axis::linear("events", [2_000_000.0].into_iter()).ticks.last(), Some(&2_000_000.0));
        assert!(Axis::linear("events", std::iter::empty()).ticks.len() > 1);
    }

    #[test]
    fn numbers_are_short_and_have_commas() {
        assert_eq!([0.001, 0.1, 0.0, 7.0, 2.5].map(number), ["0.001", "0.1", "0", "7", "2.5"]);
        assert_eq!([1000.0, 12_000.0, 1_000_000.0].map(number), ["1,000", "12,000", "1,000,000"]);
    }

    #[test]
    fn proportional_to_a_series_meets_it_at_its_last_point() {
        let series = Series::measured("a", [(1.0, 5.0), (10.0, 20.0)].into_iter());
        assert_eq!(series.proportional("b").points, [(1.0, 2.0), (10.0, 20.0)]);
    }

    #[test]
    fn points_lie_within_the_frame_and_up_is_more() {
        let series = Series::measured("a", [(0.0, 0.0), (10.0, 20.0)].into_iter());
        let (x, y) = (Axis::linear("x", series.xs()), Axis::linear("y", series.ys()));
        let frame = Frame::new(0.0, WIDTH);
        assert_eq!((frame.x(&x, 0.0), frame.y(&y, 0.0)), (frame.left, frame.bottom));
        assert_eq!((frame.x(&x, 10.0), frame.y(&y, 20.0)), (frame.right, frame.top));
        let figure = svg(&[Panel { title: "A".into(), x, y, series: vec![series] }]);
        assert_eq!((figure.matches("<circle").count(), figure.matches("<svg").count()), (2, 1));
        assert!(figure.ends_with("</svg>\n"));
    }
}
