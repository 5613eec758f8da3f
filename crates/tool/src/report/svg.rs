//! The page's charts as one SVG picture, for documents that cannot run a script.
//!
//! Draws what [`super::chart`] chose, as the page does. Light or dark follows the reader's system through the picture's own
//! style.

use std::fmt::{self, Write};

use super::chart::{ChartLine, Charts, Panel, Stroke, build_charts};
use super::series::RunSeries;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 330.0;
/// Space around the plotted area of a panel.
const LEFT: f64 = 74.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 66.0;
/// Space above the panels.
const HEAD: f64 = 56.0;
/// Space for a line of text below them.
const NOTE: f64 = 20.0;
/// Height of a row of the legend, and how many there are at most.
const ROW: f64 = 18.0;
const MOST_ROWS: usize = 8;
/// Width of a key beside its name, and of a letter of that, at most.
const KEY: f64 = 40.0;
const LETTER: f64 = 6.8;

/// The whole picture.
pub(crate) fn render(title: &str, runs: &[RunSeries]) -> String {
    render_charts(title, &build_charts(runs))
}

/// The picture of charts that are chosen already.
pub(crate) fn render_charts(title: &str, charts: &Charts) -> String {
    let mut out = String::new();
    // Formatting into memory cannot fail.
    let _ = picture(&mut out, title, charts);
    out
}

/// One panel as a picture of its own, to stand in a page.
pub(crate) fn render_panel(panel: &Panel) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\"><title>{}</title><style>{STYLE}</style>",
        panel.height(),
        escaped(panel.name)
    );
    // Formatting into memory cannot fail.
    let _ = panel.draw(&mut out, 0);
    out + "</svg>"
}

fn picture(out: &mut String, title: &str, charts: &Charts) -> fmt::Result {
    let Charts { panels, left_out } = charts;
    let high = panels.iter().map(Panel::height).fold(HEIGHT, f64::max);
    let below = HEAD + panels.len().div_ceil(2) as f64 * high + 8.0;
    let (width, height) = (2.0 * WIDTH, below + left_out.len() as f64 * NOTE);
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">"
    )?;
    writeln!(out, "<title>{}</title>\n<style>{STYLE}</style>", escaped(title))?;
    writeln!(out, "<rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>")?;
    writeln!(out, "<text class=\"title\" x=\"24\" y=\"36\">{}</text>", escaped(title))?;
    for (at, panel) in panels.iter().enumerate() {
        let (x, y) = ((at % 2) as f64 * WIDTH, HEAD + (at / 2) as f64 * high);
        writeln!(out, "<g transform=\"translate({x} {y})\">")?;
        panel.draw(out, at)?;
        writeln!(out, "</g>")?;
    }
    for (at, missing) in left_out.iter().enumerate() {
        let (y, name) = (below + at as f64 * NOTE, escaped(&missing.name));
        writeln!(
            out,
            "<text class=\"missing\" x=\"24\" y=\"{y}\">Not drawn: {name}. {}</text>",
            missing.why
        )?;
    }
    writeln!(out, "</svg>")
}

/// Roles and their colours, as in `page/page.css`.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#5c6670}.title{font-size:20px;font-weight:600;fill:#1b1f24}\
.name{font-size:14px;font-weight:600;fill:#1b1f24}.key{fill:#1b1f24}.paper{fill:#fcfcfb}\
.grid{stroke:#edf0f2}.axis{stroke:#dfe3e7}path,.sample{fill:none;stroke-width:1.8;stroke-linejoin:round}circle{fill:none;stroke-width:2.2}\
.c1{stroke:#1f6fd1}.c2{stroke:#c2570c}.c3{stroke:#17805a}.c4{stroke:#8a3fc0}.c5{stroke:#b3255a}.c6{stroke:#0d7f92}\
.c7{stroke:#8a6d00}.c8{stroke:#5661d8}.bad{stroke:#c8283f}.plain{stroke:#7b8794}\
.thin{stroke-width:1.2}.dashed{stroke-dasharray:5 4}.few{fill:#f3f5f7}\
@media(prefers-color-scheme:dark){text{fill:#9ca7b2}.title,.name,.key{fill:#e7eaed}.paper{fill:#14171a}\
.grid{stroke:#282e34}.axis{stroke:#343b42}.c1{stroke:#6aa9f7}.c2{stroke:#f0954f}.c3{stroke:#4fc596}.c4{stroke:#c08bf0}\
.c5{stroke:#f07ba4}.c6{stroke:#4cc3d6}.c7{stroke:#d9b93c}.c8{stroke:#9aa3ff}.bad{stroke:#ff7a8a}.plain{stroke:#9aa5b1}\
.few{fill:#22272c}}";

impl Panel {
    fn draw(&self, out: &mut String, at: usize) -> fmt::Result {
        self.grid(out)?;
        let (wide, high) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
        writeln!(
            out,
            "<clipPath id=\"p{at}\"><rect x=\"{}\" y=\"{:.1}\" width=\"{}\" height=\"{:.1}\"/></clipPath>",
            LEFT - 3.0,
            TOP - 4.0,
            wide + 6.0,
            high + 7.0
        )?;
        writeln!(out, "<g clip-path=\"url(#p{at})\">")?;
        self.lines.iter().try_for_each(|line| self.path(out, line))?;
        writeln!(out, "</g>")?;
        self.legend(out)
    }

    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let (wide, high) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
        (LEFT + self.x.relative_position(x) * wide, TOP + (1.0 - self.y.relative_position(y)) * high)
    }

    fn grid(&self, out: &mut String) -> fmt::Result {
        let (right, base) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        writeln!(out, "<text class=\"name\" x=\"24\" y=\"24\">{}</text>", self.name)?;
        writeln!(out, "<text x=\"24\" y=\"46\">{}</text>", self.unit)?;
        self.few(out)?;
        for (value, label) in &self.y.ticks {
            let (_, y) = self.place(0.0, *value);
            writeln!(out, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>")?;
            writeln!(
                out,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 8.0,
                y + 4.0
            )?;
        }
        let mut taken = f64::MIN;
        for (value, label) in &self.x.ticks {
            let (x, _) = self.place(*value, self.y.lower_end());
            writeln!(out, "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{base}\"/>")?;
            // A label that would touch its neighbour is left out; its line stays.
            let half = label.chars().count() as f64 * 3.4;
            if x - half > taken + 8.0 {
                writeln!(
                    out,
                    "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
                    base + 17.0
                )?;
                taken = x + half;
            }
        }
        writeln!(out, "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{base}\" y2=\"{base}\"/>")?;
        writeln!(out, "<text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{}</text>", base + 34.0, self.below)
    }

    /// The part in which answers are few, in another shade.
    fn few(&self, out: &mut String) -> fmt::Result {
        let Some((from, name)) = self.few else { return Ok(()) };
        let (right, base) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let (x, _) = self.place(from, self.y.lower_end());
        let (wide, high) = (right - x, base - TOP);
        let place = format!("x=\"{x:.1}\" y=\"{TOP}\" width=\"{wide:.1}\" height=\"{high}\"");
        writeln!(out, "<rect class=\"few\" {place}/>")?;
        let (x, y) = (right - 6.0, base - 8.0);
        writeln!(out, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\">{name}</text>")
    }

    /// A line breaks where a value is missing; a value alone between gaps is a dot.
    fn path(&self, out: &mut String, line: &ChartLine) -> fmt::Result {
        let class = line.class();
        for stretch in line.points.split(|(_, y)| !y.is_some_and(|y| self.y.can_show(y))) {
            let mut places = stretch.iter().filter_map(|(x, y)| y.map(|y| self.place(*x, y)));
            let Some((x, y)) = places.next() else { continue };
            if stretch.len() == 1 {
                writeln!(
                    out,
                    "<circle class=\"{class}\" style=\"stroke-dasharray:none\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.1\"/>"
                )?;
                continue;
            }
            write!(out, "<path class=\"{class}\" d=\"M{x:.1} {y:.1}")?;
            places.try_for_each(|(x, y)| write!(out, "L{x:.1} {y:.1}"))?;
            writeln!(out, "\"/>")?;
        }
        Ok(())
    }

    /// Returns the lines that the legend names.
    fn named(&self) -> impl Iterator<Item = &ChartLine> {
        self.lines.iter().filter(|line| !line.name.is_empty())
    }

    /// Returns the key of each line in the legend: its row, its distance from the left, and its name. The last rows of very many
    /// lines are left out.
    fn keys(&self) -> Vec<(usize, f64, String)> {
        let (mut row, mut x) = (0, LEFT);
        let place = |line: &ChartLine| {
            let name = shortened(&line.name);
            let width = KEY + name.chars().count() as f64 * LETTER;
            if x > LEFT && x + width > WIDTH {
                (row, x) = (row + 1, LEFT);
            }
            x += width;
            (row, x - width, name)
        };
        self.named().map(place).take_while(|(row, ..)| *row < MOST_ROWS).collect()
    }

    /// Returns the height of the picture, with its legend.
    fn height(&self) -> f64 {
        let keys = self.keys();
        let last = keys.last().map_or(0, |(row, ..)| *row);
        let rest = usize::from(keys.len() < self.named().count());
        HEIGHT + (last + rest) as f64 * ROW
    }

    fn legend(&self, out: &mut String) -> fmt::Result {
        let keys = self.keys();
        for (line, (row, x, name)) in self.named().zip(&keys) {
            let y = HEIGHT - 12.0 + *row as f64 * ROW;
            writeln!(
                out,
                "<line class=\"sample {}\" x1=\"{x:.0}\" x2=\"{:.0}\" y1=\"{y2}\" y2=\"{y2}\"/>",
                line.class(),
                x + 22.0,
                y2 = y - 4.0
            )?;
            writeln!(out, "<text class=\"key\" x=\"{:.0}\" y=\"{y}\">{}</text>", x + 28.0, escaped(name))?;
        }
        let left_out = self.named().count() - keys.len();
        if left_out > 0 {
            let y = self.height() - 12.0;
            writeln!(out, "<text x=\"{LEFT}\" y=\"{y}\">… and {left_out} more</text>")?;
        }
        Ok(())
    }
}

impl ChartLine {
    fn class(&self) -> String {
        let stroke = match self.stroke {
            // No report has points that nothing joins: a line of one point is one.
            Stroke::Solid | Stroke::Dots => "",
            Stroke::Thin => " thin",
            Stroke::Dashed => " dashed",
        };
        self.colour.to_owned() + stroke
    }
}

/// A name for the legend. Names of runs differ at their start or at their end, so both are kept.
fn shortened(name: &str) -> String {
    const MOST: usize = 24;
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= MOST {
        return name.to_owned();
    }
    let (start, end) = (&letters[..MOST / 2 - 1], &letters[letters.len() - MOST / 2..]);
    start.iter().chain(&['…']).chain(end).collect()
}

/// Text as it may stand between tags; control characters have no place in XML at all.
fn escaped(text: &str) -> String {
    let clean: String = text.chars().filter(|letter| !letter.is_control()).collect();
    clean.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
