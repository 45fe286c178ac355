//! Folded stacks as a flame graph: a self-contained drawing, for mouse and keyboard, light and dark.

use crate::Report;
use crate::chart::escaped;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const STYLE: &str = include_str!("flame.css");
const SCRIPT: &str = include_str!("flame.js");

/// Style of the page around the drawing.
const PAGE: &str = "body { background: #fdfdfb; color: #1d2229; margin: 0 1rem 2rem; } pre { font-size: 13px; overflow-x: auto; }\n\
    @media (prefers-color-scheme: dark) { body { background: #14171b; color: #e3e6ea; } }";

const WIDTH: f64 = 1200.0;
const ROW: f64 = 18.0;
const ABOVE: f64 = 46.0;
const BELOW: f64 = 26.0;
/// Width of a letter.
const LETTER: f64 = 6.6;
/// Minimum width of a drawn frame, to keep the file small.
const NARROWEST: f64 = 0.25;
/// Maximum depth; deeper frames count at that depth.
const DEPTH_MAX: usize = 200;
/// Number of colors of user functions.
const COLOURS: u32 = 6;

/// A function at one place of the call tree.
#[derive(Debug, Default)]
struct Node {
    samples: u64,
    children: BTreeMap<String, Self>,
}

impl Node {
    fn depth(&self) -> usize {
        1 + self.children.values().map(Self::depth).max().unwrap_or(0)
    }
}

/// A flame graph of folded stacks (`frame;frame;frame COUNT`, a line each, the outermost frame first), as an SVG file. Skips
/// invalid lines.
///
/// ```
/// let drawing = report::flame("loop 1", "main;work 3\nmain 1\n");
/// assert!(drawing.starts_with("<svg") && drawing.contains("work: 3 samples, 75.00 %"));
/// ```
#[must_use]
pub fn flame(title: &str, folded: &str) -> String {
    let svg = drawing(title, folded);
    let svg = svg.replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 1);
    // In XML a script needs a CDATA section, in HTML it must not have one.
    svg.replacen("<script>", "<script><![CDATA[", 1).replacen("</script>", "]]></script>", 1)
}

/// The drawing as a part of a page.
fn drawing(title: &str, folded: &str) -> String {
    let root = tree(folded);
    let rows = root.depth();
    let height = ABOVE + BELOW + rows as f64 * ROW;
    let mut svg = format!(
        "<svg class=\"flame\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"flame graph: {}\">\n\
         <style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"{}\" y=\"20\">{}</text>\n\
         <text class=\"help\" x=\"4\" y=\"38\">click or Enter: widen; arrows: move; /: search; Escape: all</text>\n\
         <text class=\"found\" x=\"{}\" y=\"38\" text-anchor=\"end\"></text>\n<text class=\"status\" x=\"4\" y=\"{}\"></text>\n",
        escaped(title),
        WIDTH / 2.0,
        escaped(title),
        WIDTH - 4.0,
        height - 8.0
    );
    let mut draw = Draw { svg: &mut svg, all: root.samples.max(1) as f64, bottom: height - BELOW };
    draw.node("all", &root, 0, 0.0);
    let _ = writeln!(svg, "<script>\n{SCRIPT}</script></svg>");
    svg
}

/// A page with a flame graph and the terminal's text below it.
#[must_use]
pub fn flame_page(title: &str, folded: &str, text: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\n<meta name=\"viewport\" content=\"width=device-width\">\
         <style>{PAGE}</style></head><body>\n{}<pre>{}</pre></body></html>\n",
        escaped(title),
        drawing(title, folded),
        escaped(text)
    )
}

/// The profiles of a run, as sections of a page.
pub(crate) fn page(out: &mut String, run: &str, reports: &[Report]) {
    for report in reports.iter().filter(|report| !report.stacks.is_empty()) {
        let name = escaped(&report.what);
        let drawn = drawing(&report.what, &report.stacks);
        let _ =
            writeln!(out, "<section><h2>Where the time goes: {name}</h2><p>{}</p>\n{drawn}</section>", escaped(run));
    }
}

fn tree(folded: &str) -> Node {
    let mut root = Node::default();
    for line in folded.lines() {
        let Some((stack, count)) = line.rsplit_once(' ') else { continue };
        let Ok(count) = count.parse::<u64>() else { continue };
        root.samples = root.samples.saturating_add(count);
        let mut node = &mut root;
        for name in stack.split(';').take(DEPTH_MAX) {
            // XML cannot represent control characters.
            let name = name.replace(|letter: char| letter.is_control(), "?");
            node = node.children.entry(name).or_default();
            node.samples = node.samples.saturating_add(count);
        }
    }
    root
}

struct Draw<'a> {
    svg: &'a mut String,
    all: f64,
    bottom: f64,
}

impl Draw<'_> {
    fn node(&mut self, name: &str, node: &Node, depth: usize, from: f64) {
        let share = node.samples as f64 / self.all;
        let width = share * WIDTH;
        if width < NARROWEST {
            return;
        }
        let (name, kind) = match name.strip_suffix("_[k]") {
            Some(name) => (name, "k".to_owned()),
            None if name.starts_with('[') => (name, "n".to_owned()),
            None => (name, format!("c{}", colour(name))),
        };
        let y = self.bottom - (depth + 1) as f64 * ROW;
        let fits = ((width - 4.0) / LETTER) as usize;
        let shown = match name.chars().count() {
            letters if letters <= fits => name.to_owned(),
            _ if fits < 3 => String::new(),
            _ => name.chars().take(fits - 1).chain(['…']).collect(),
        };
        let _ = writeln!(
            self.svg,
            "<g class=\"f {kind}\" tabindex=\"0\" data-d=\"{depth}\" data-x=\"{from:.3}\" data-w=\"{width:.3}\">\
             <title>{}: {} samples, {:.2} %</title><rect x=\"{from:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{}\"/>\
             <text x=\"{:.2}\" y=\"{}\">{}</text></g>",
            escaped(name),
            node.samples,
            share * 100.0,
            ROW - 1.0,
            from + 2.0,
            y + 13.0,
            escaped(&shown)
        );
        let mut from = from;
        for (name, child) in &node.children {
            self.node(name, child, depth + 1, from);
            from += child.samples as f64 / self.all * WIDTH;
        }
    }
}

/// A color that depends only on the function's name.
fn colour(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)) % COLOURS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_shares_and_names_are_text() {
        let drawing = flame("<run>", "loop;main;a<b>\u{1} 3\nloop;main;poll_[k] 1\nno stack\n");
        assert!(drawing.contains("&lt;run&gt;") && drawing.contains("a&lt;b&gt;?: 3 samples, 75.00 %"), "{drawing}");
        assert!(drawing.contains("class=\"f k\"") && drawing.contains("<title>poll: 1 samples, 25.00 %"));
        assert!(drawing.contains("data-x=\"0.000\" data-w=\"900.000\""), "a quarter less than all");
        assert_eq!(drawing.matches("<g ").count(), 5, "all, loop, main and two functions");
        assert!(!drawing.replace("http://www.w3.org/2000/svg", "").contains("http"), "no external resources");
    }

    #[test]
    fn a_page_with_a_profile_contains_its_drawing_and_is_self_contained() {
        let report = Report { what: "loop".into(), stacks: "loop;main;work 3\n".into(), ..Report::default() };
        let text = crate::page(&[("run".into(), vec![report.clone()])]);
        assert!(text.contains("Where the time goes: loop</h2>") && text.contains("<title>work: 3 samples, 100.00 %"));
        assert!(!text.contains("http") && !text.contains("CDATA"), "no external resources");
        assert_eq!(crate::read(&crate::json(&report)).unwrap(), [report]);
    }

    #[test]
    fn strange_stacks_draw_something_or_nothing() {
        let deep = format!("{} 1", vec!["f"; 10_000].join(";"));
        for text in
            ["", " ", "a", "a 99999999999999999999999", "a 18446744073709551615\nb 18446744073709551615", ";; 1", &deep]
        {
            assert!(flame("t", text).ends_with("</svg>\n"), "{}", &text[..text.len().min(20)]);
        }
    }
}
