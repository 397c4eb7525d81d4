//! Tables in Markdown, for the terminal and for `docs/explanation/benchmarks.md`.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};

/// A table with column widths that fit its content.
pub(super) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(head: &[&str]) -> Self {
        Self {
            head: head.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
        }
    }

    pub(super) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.head.len())
            .map(|column| {
                std::iter::once(&self.head)
                    .chain(&self.rows)
                    .filter_map(|row| row.get(column))
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let line = |f: &mut fmt::Formatter<'_>, cells: &[String]| {
            f.write_str("|")?;
            for (cell, width) in cells.iter().zip(&widths) {
                write!(f, " {cell:width$} |")?;
            }
            f.write_str("\n")
        };
        line(f, &self.head)?;
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        line(f, &rule)?;
        self.rows.iter().try_for_each(|row| line(f, row))
    }
}

/// Replaces the text between `<!-- NAME -->` and `<!-- end -->` in
/// `docs/explanation/benchmarks.md`.
pub(super) fn write(tables: &[(&str, Table)]) -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/explanation/benchmarks.md");
    let mut text = fs_err::read_to_string(&file)?;
    for (name, table) in tables {
        let mark = format!("<!-- {name} -->\n");
        let start = text.find(&mark).with_context(|| {
            format!(
                "docs/explanation/benchmarks.md has no mark `{}`",
                mark.trim()
            )
        })? + mark.len();
        let length = text[start..]
            .find("<!-- end -->")
            .with_context(|| format!("docs/explanation/benchmarks.md has no end of `{name}`"))?;
        text.replace_range(start..start + length, &format!("\n{table}\n"));
    }
    fs_err::write(&file, text)?;
    Ok(())
}
