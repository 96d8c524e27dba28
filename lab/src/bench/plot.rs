//! Line plots as SVG, readable in light and dark themes: the colours come from a style that follows
//! the reader's theme.

use plotters::coord::Shift;
use plotters::coord::combinators::BindKeyPoints;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::number::number_of;

/// A line.
#[derive(Debug, Clone)]
pub struct Line {
    /// The label.
    pub name: String,
    /// The points, sorted by x.
    pub points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Debug, Clone)]
pub struct Plot {
    /// The title.
    pub title: String,
    /// The label of the x axis.
    pub x: &'static str,
    /// The label of the y axis.
    pub y: &'static str,
    /// Whether the y axis is logarithmic; the x axis always is.
    pub log_y: bool,
    /// The lines.
    pub lines: Vec<Line>,
}

/// Width and height.
const SIZE: (u32, u32) = (720, 400);
/// The width of the labels beside the plot.
const LABEL_WIDTH: u32 = 90;
/// Placeholders that the style replaces: plotters has only fixed colours.
const INK_COLOUR: RGBColor = RGBColor(1, 1, 1);
const GRID_COLOUR: RGBColor = RGBColor(2, 2, 2);
const GROUND_COLOUR: RGBColor = RGBColor(3, 3, 3);
/// Colours that are distinguishable in both themes, also for readers with red-green colour
/// blindness.
const COLOURS: [(RGBColor, &str, &str); 6] = [
    (RGBColor(4, 4, 4), "#0b62c4", "#6cb0ff"),
    (RGBColor(5, 5, 5), "#b45309", "#ffb454"),
    (RGBColor(6, 6, 6), "#0f766e", "#5eead4"),
    (RGBColor(7, 7, 7), "#a21caf", "#f0abfc"),
    (RGBColor(8, 8, 8), "#b91c1c", "#ff8f8f"),
    (RGBColor(9, 9, 9), "#4b5563", "#cbd5e1"),
];

impl Plot {
    /// The plot as SVG; `None` without points.
    ///
    /// # Errors
    /// An error of plotters.
    pub fn svg(&self) -> Result<Option<String>, String> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let (Some(x), Some(y)) =
            (range(points().map(|point| point.0)), range(points().map(|point| point.1)))
        else {
            return Ok(None);
        };
        let mut svg = String::new();
        let drawn = {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            if self.log_y {
                // A power of ten below and above, so that the axis has labels.
                let y = 10f64.powf(y.start.max(0.01).log10().floor())
                    ..10f64.powf(y.end.max(0.1).log10().ceil());
                self.draw(&area, x, y.log_scale())
            } else {
                self.draw(&area, x, 0.0..y.end * 1.08)
            }
        };
        drawn.map_err(|error| error.to_string())?;
        Ok(Some(themed(&svg)))
    }

    fn draw<Y>(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        x: std::ops::Range<f64>,
        y: Y,
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        area.fill(&GROUND_COLOUR)?;
        let style = |size: i32| ("sans-serif", size).into_font().color(&INK_COLOUR);
        let mut ticks: Vec<f64> =
            self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
        ticks.sort_unstable_by(f64::total_cmp);
        ticks.dedup();
        // Labels beside the plot, where they hide no line.
        let (left, right) = area.split_horizontally(SIZE.0 - LABEL_WIDTH);
        let mut chart = ChartBuilder::on(&left)
            .caption(&self.title, style(17))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(74)
            .build_cartesian_2d(
                (x.start * 0.93..x.end * 1.07).log_scale().with_key_points(ticks.clone()),
                y,
            )?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .x_labels(ticks.len())
            .axis_style(INK_COLOUR)
            .bold_line_style(GRID_COLOUR)
            .light_line_style(TRANSPARENT)
            .label_style(style(13))
            .axis_desc_style(style(14))
            .x_label_formatter(&|value| label(*value))
            .y_label_formatter(&|value| label(*value))
            .draw()?;
        for (line, (place, (colour, _, _))) in
            self.lines.iter().zip((0..).zip(COLOURS.iter().cycle()))
        {
            chart.draw_series(
                LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)).point_size(3),
            )?;
            let y = 56 + 22 * place;
            right.draw(&PathElement::new([(0, y), (18, y)], colour.stroke_width(2)))?;
            right.draw(&Text::new(line.name.as_str(), (25, y - 7), style(13)))?;
        }
        area.present()?;
        Ok(())
    }
}

/// The minimum and the maximum; `None` without values.
fn range(values: impl Iterator<Item = f64>) -> Option<std::ops::Range<f64>> {
    values.fold(None, |range, value| {
        Some(range.map_or(value..value, |range: std::ops::Range<f64>| {
            range.start.min(value)..range.end.max(value)
        }))
    })
}

/// A number on an axis.
fn label(value: f64) -> String {
    if value >= 10.0 {
        return number_of(value.round() as u64);
    }
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The names of the placeholders, and their colours in both themes.
fn themed(svg: &str) -> String {
    let (mut text, mut light, mut dark) = (svg.to_owned(), String::new(), String::new());
    let others = [
        (INK_COLOUR, "#1f2933", "#e5e7eb"),
        (GRID_COLOUR, "#d8dee6", "#3b4452"),
        (GROUND_COLOUR, "#ffffff", "#151a21"),
    ];
    for (place, (stand_in, on_light, on_dark)) in others.iter().chain(&COLOURS).enumerate() {
        let RGBColor(r, g, b) = stand_in;
        text =
            text.replace(&format!("\"#{r:02X}{g:02X}{b:02X}\""), &format!("\"var(--c{place})\""));
        light += &format!("--c{place}:{on_light};");
        dark += &format!("--c{place}:{on_dark};");
    }
    let style =
        format!("<style>svg{{{light}}}@media (prefers-color-scheme:dark){{svg{{{dark}}}}}</style>");
    match text.find('>') {
        Some(end) => format!("{} role=\"img\">{style}{}", &text[..end], &text[end + 1..]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(log_y: bool) -> Plot {
        let line = |name: &str, by: f64| Line {
            name: name.to_owned(),
            points: vec![(1000.0, 2.0 * by), (1_000_000.0, 3.5 * by)],
        };
        Plot {
            title: "Lateness & co".to_owned(),
            x: "pending",
            y: "ms",
            log_y,
            lines: vec![line("p50", 1.0), line("p99", 4.0)],
        }
    }

    #[test]
    fn a_plot_follows_the_theme_and_names_its_lines_and_points() {
        for log_y in [false, true] {
            let svg = plot(log_y).svg().unwrap().unwrap();
            for part in [
                "prefers-color-scheme:dark",
                "var(--c3)",
                "var(--c4)",
                "p50",
                "p99",
                "1 000 000",
                "Lateness &amp; co",
            ] {
                assert!(svg.contains(part), "{part}: {svg}");
            }
            assert!(!svg.contains("\"#0"), "a fixed colour: {svg}");
        }
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert_eq!(Plot { lines: Vec::new(), ..plot(true) }.svg(), Ok(None));
    }
}
