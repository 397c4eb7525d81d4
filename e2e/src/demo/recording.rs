//! Recording of a few commands of the demo with their real output, as an animated SVG for the
//! README. Values that differ between runs are shortened.

use std::fmt::Write as _;
use std::time::Duration;

use crate::host::command::Output;

use super::DemoOutput;

/// Beginnings of the recorded command lines, in the order of the demo. For each beginning, the
/// first command line that matches is recorded.
const EXCERPT: [&str; 6] = [
    "kubectl bundle build shop --to",
    "kubectl bundle push shop-1.0.0",
    "kubectl bundle sign --key release.key",
    "kubectl bundle deploy shop",
    "kubectl wait --for=condition=Installed bundledeployment/shop",
    "kubectl bundle deploy unsigned",
];
/// Host of the registry in the recording, instead of a loopback address.
const REGISTRY: &str = "registry.example.com";
/// Maximum number of characters in a row.
const COLUMNS: usize = 100;
/// Beginning of the rows that continue a line.
const INDENT: &str = "    ";
/// Number of hexadecimal digits of a digest in the recording.
const DIGITS: usize = 8;
/// Length of a key hint, which is a SHA-256 digest in Base64.
const HINT: usize = 44;
/// Seconds from one command to the next.
const PAUSE: f64 = 2.0;
/// Maximum number of output lines of one command; longer output is shortened.
const LINES: usize = 6;
/// Width of the picture, in pixels.
const WIDTH: usize = 820;
/// Height of a line, in pixels.
const LINE: usize = 18;

/// A recorded command line with its output.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    command: String,
    output: Vec<String>,
}

/// The recorded part of a demo.
#[derive(Debug, Default)]
pub struct Recording {
    /// Host of the registry of this run.
    registry: String,
    entries: Vec<Entry>,
}

impl Recording {
    /// Returns an empty recording of a demo that uses the registry with this host.
    pub fn new(registry: String) -> Self {
        Self {
            registry,
            entries: Vec::new(),
        }
    }

    /// Records a command line if it is the next command line of the excerpt.
    pub fn add(&mut self, output: &Output) {
        let next = EXCERPT.get(self.entries.len());
        if next.is_none_or(|start| !output.line.starts_with(start)) {
            return;
        }
        let texts = [&output.stderr, &output.stdout];
        let lines = texts.iter().flat_map(|text| text.lines());
        self.entries.push(Entry {
            command: self.stable(&output.line),
            output: shortened(lines.map(|line| self.stable(line)).collect()),
        });
    }

    /// Replaces values that differ between runs: the registry, digests and key hints.
    fn stable(&self, line: &str) -> String {
        let line = line.replace(&self.registry, REGISTRY);
        let mut words = Vec::new();
        for word in line.split(' ') {
            let word = match word.split_once("sha256:") {
                Some((before, digest)) if digest.len() > DIGITS => {
                    let hex = |letter: &char| letter.is_ascii_hexdigit();
                    let digits = digest.chars().take_while(hex).count();
                    let (digest, after) = digest.split_at(digits);
                    let shown: String = digest.chars().take(DIGITS).collect();
                    format!("{before}sha256:{shown}…{after}")
                }
                _ => word.to_owned(),
            };
            let is_hint = word.trim_end_matches(')').len() == HINT && word.contains('=');
            words.push(if is_hint { "…)".to_owned() } else { word });
        }
        words.join(" ")
    }

    /// Returns the recording as an SVG. Without animations, for example in print, every line is
    /// visible.
    pub fn svg(&self) -> String {
        let count: usize = self
            .entries
            .iter()
            .flat_map(|entry| entry.output.iter().chain([&entry.command]))
            .map(|line| wrapped(line).len())
            .sum();
        let height = (count + self.entries.len() + 1) * LINE;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" xml:space=\"preserve\">\n\
             <title>Terminal session: build, push, sign and deploy a bundle; an unsigned bundle is rejected</title>\n\
             <style>\n\
             text {{ font: 13px ui-monospace, monospace; white-space: pre; fill: #c9d1d9 }}\n\
             .c {{ fill: #7ee787 }}\n\
             .e {{ fill: #ff7b72 }}\n\
             @media (prefers-reduced-motion: no-preference) {{ g {{ animation: show 0.2s both }} }}\n\
             @keyframes show {{ from {{ opacity: 0 }} }}\n\
             </style>\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" rx=\"6\" fill=\"#0d1117\"/>\n"
        );
        let mut y = LINE * 3 / 2;
        let mut delay = 0.0;
        for entry in &self.entries {
            let _ = writeln!(svg, "<g style=\"animation-delay: {delay:.1}s\">");
            text(
                &mut svg,
                &mut y,
                " class=\"c\"",
                &format!("$ {}", entry.command),
            );
            svg.push_str("</g>\n");
            let _ = writeln!(
                svg,
                "<g style=\"animation-delay: {:.1}s\">",
                delay + PAUSE / 2.0
            );
            for line in &entry.output {
                let is_error = ["Error", "error: "]
                    .iter()
                    .any(|start| line.starts_with(start));
                let class = if is_error { " class=\"e\"" } else { "" };
                text(&mut svg, &mut y, class, line);
            }
            svg.push_str("</g>\n");
            y += LINE;
            delay += PAUSE;
        }
        svg + "</svg>\n"
    }
}

impl DemoOutput for Recording {
    fn chapter(&mut self, _: usize, _: &str) {}
    fn say(&mut self, _: &str) {}
    fn ran(&mut self, output: &Output, _: Duration) {
        self.add(output);
    }
    fn observed(&mut self, _: &str, _: Duration) {}
}

/// If there are more than [`LINES`] lines, replaces the lines before the last line with `… N more
/// lines`, so that [`LINES`] lines remain.
fn shortened(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > LINES {
        let omitted = lines.len() - (LINES - 1);
        lines.splice(
            LINES - 2..lines.len() - 1,
            [format!("… {omitted} more lines")],
        );
    }
    lines
}

/// Adds a line to the picture at the height `y`, and moves `y` below the line.
fn text(svg: &mut String, y: &mut usize, class: &str, line: &str) {
    for row in wrapped(line) {
        let _ = writeln!(
            svg,
            "<text{class} x=\"16\" y=\"{y}\">{}</text>",
            escaped(&row)
        );
        *y += LINE;
    }
}

/// Splits a line at spaces into rows of at most [`COLUMNS`] characters, unless a word is longer.
fn wrapped(line: &str) -> Vec<String> {
    let mut rows = Vec::new();
    let mut row = String::new();
    for (index, word) in line.split(' ').enumerate() {
        if index > 0 {
            if row.chars().count() + 1 + word.chars().count() > COLUMNS {
                rows.push(std::mem::replace(&mut row, INDENT.to_owned()));
            } else {
                row.push(' ');
            }
        }
        row.push_str(word);
    }
    rows.push(row);
    rows
}

/// Escapes a text for XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(line: &str, stdout: &str, stderr: &str) -> Output {
        Output {
            line: line.to_owned(),
            code: Some(0),
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        }
    }

    #[test]
    fn records_the_excerpt_in_order_with_stable_values() {
        let mut recording = Recording::new("127.0.0.1:5000".to_owned());
        let digest = "a".repeat(64);
        recording.add(&output("kubectl bundle sign --key release.key x", "", ""));
        recording.add(&output(
            "kubectl bundle build shop --to shop-1.0.0",
            &format!("sha256:{digest}\n"),
            "shop <1.0.0>\n",
        ));
        recording.add(&output(
            "kubectl bundle push shop-1.0.0 127.0.0.1:5000/shop:1.0.0",
            &format!("127.0.0.1:5000/shop@sha256:{digest}\n"),
            "",
        ));
        let hint = "b".repeat(43) + "=";
        recording.add(&output(
            "kubectl bundle sign --key release.key 127.0.0.1:5000/shop:1.0.0",
            "",
            &format!("signed with release.key (ECDSA P-256, {hint})\n"),
        ));
        let lines: Vec<&str> = recording
            .entries
            .iter()
            .flat_map(|entry| std::iter::once(&entry.command).chain(&entry.output))
            .map(String::as_str)
            .collect();
        assert_eq!(
            lines,
            [
                "kubectl bundle build shop --to shop-1.0.0",
                "shop <1.0.0>",
                "sha256:aaaaaaaa…",
                "kubectl bundle push shop-1.0.0 registry.example.com/shop:1.0.0",
                "registry.example.com/shop@sha256:aaaaaaaa…",
                "kubectl bundle sign --key release.key registry.example.com/shop:1.0.0",
                "signed with release.key (ECDSA P-256, …)",
            ]
        );
        let svg = recording.svg();
        assert!(svg.contains("shop &lt;1.0.0&gt;</text>"), "{svg}");
        assert_eq!(svg.matches("<text").count(), 7);
    }

    #[test]
    fn long_output_is_shortened_before_its_last_line() {
        let lines = |count: usize| (0..count).map(|number| number.to_string()).collect();
        assert_eq!(shortened(lines(6)), ["0", "1", "2", "3", "4", "5"]);
        assert_eq!(
            shortened(lines(9)),
            ["0", "1", "2", "3", "… 4 more lines", "8"]
        );
    }

    #[test]
    fn long_lines_are_wrapped_at_spaces() {
        let line = format!("  hint: {} {}", "a".repeat(COLUMNS), "b".repeat(8));
        let rows = [
            "  hint:".to_owned(),
            format!("    {}", "a".repeat(COLUMNS)),
            "    bbbbbbbb".to_owned(),
        ];
        assert_eq!(wrapped(&line), rows);
        assert_eq!(wrapped("  a  b"), ["  a  b"]);
    }
}
