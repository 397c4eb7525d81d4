//! Tables in the format of kubectl: columns are three spaces apart, so that awk can split them.

use super::escape::safe;

/// Rows under a header.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table with these column names.
    pub(crate) fn new<const N: usize>(header: [&str; N]) -> Self {
        Self {
            rows: vec![header.map(str::to_owned).to_vec()],
        }
    }

    /// Adds a row of untrusted texts. An empty cell is printed as `<none>`, so that columns can be
    /// counted.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(
            cells
                .into_iter()
                .map(|cell| {
                    if cell.is_empty() {
                        "<none>".to_owned()
                    } else {
                        safe(&cell)
                    }
                })
                .collect(),
        );
    }

    /// Returns the table without its column names if `no_headers` is true, as for `--no-headers` of
    /// kubectl.
    pub(crate) fn omit_headers(mut self, no_headers: bool) -> Self {
        if no_headers && !self.rows.is_empty() {
            self.rows.remove(0);
        }
        self
    }

    /// Returns the table as text. Each row ends with a newline.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                self.rows
                    .iter()
                    .filter_map(|row| row.get(column))
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            for (index, cell) in row.iter().enumerate() {
                text.push_str(cell);
                if index + 1 < row.len() {
                    let gap = widths[index] - cell.chars().count() + 3;
                    text.extend(std::iter::repeat_n(' ', gap));
                }
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligns_like_kubectl() {
        let mut table = Table::new(["NAME", "READY"]);
        table.row(["web".to_owned(), "True".to_owned()]);
        table.row(["a-long-name".to_owned(), String::new()]);
        assert_eq!(
            table.render(),
            "NAME          READY\nweb           True\na-long-name   <none>\n"
        );
        assert_eq!(
            table.omit_headers(true).render(),
            "web           True\na-long-name   <none>\n"
        );
    }
}
