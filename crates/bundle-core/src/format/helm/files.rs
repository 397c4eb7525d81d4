//! The files of a chart that helm reads. Ignored files are removed, and functions that read a
//! cluster or the clock are replaced. Schemas cannot refer to other files or URLs.

use super::{
    bad,
    ignore::{IGNORE, Ignore},
    schema_file,
    template::{self, Impurity},
};
use crate::diagnostic::Findings;

/// Folder of the dependencies of a chart.
const DEPENDENCIES: &str = "charts/";
/// Folder of the templates of a chart.
const TEMPLATES: &str = "templates/";
/// Schema of the values of a chart.
const SCHEMA: &str = "values.schema.json";
/// Maximum product of the lengths of all patterns and all paths: about a second of comparisons.
const COMPARISONS: usize = 1 << 30;
/// Function that returns an error unless it has exactly one argument. The function replaces
/// `lookup` (four arguments) and `now` (no argument). A call is therefore an error only if helm
/// executes the call.
const FAIL: &[u8] = b"fail";

/// A file of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChartFile {
    /// A file with this content.
    Content(Vec<u8>),
    /// A packed dependency, which the caller unpacks into a folder of the same name without
    /// `.tgz`.
    Packed(Vec<u8>),
}

/// Prepares the files of a chart for helm, one after the other.
#[derive(Debug)]
pub struct ChartFiles {
    folder: String,
    ignore: Ignore,
    is_random: bool,
}

impl ChartFiles {
    /// Creates a [`ChartFiles`] for the chart in `folder` of a bundle. `folder` is empty or ends
    /// with `/`. `ignored` is the content of the chart's `.helmignore`. Returns an error if
    /// `ignored` is invalid.
    pub fn new(folder: &str, ignored: Option<&[u8]>) -> Result<Self, Findings> {
        Ok(Self {
            folder: folder.to_owned(),
            ignore: ignored.map(Ignore::parse).transpose()?.unwrap_or_default(),
            is_random: false,
        })
    }

    /// Returns an error if the comparison of all patterns with these paths takes too long.
    pub fn check_paths(&self, paths: &[String]) -> Result<(), Findings> {
        let length: usize = paths.iter().map(|path| compared_length(path)).sum();
        if length.saturating_mul(self.ignore.length()) > COMPARISONS {
            let finding = bad(
                IGNORE,
                "the file has too many patterns for the files of the chart",
            );
            return Err(finding.hint("remove patterns").into());
        }
        Ok(())
    }

    /// Returns `true` if helm reads the file at `path` of the bundle.
    pub fn includes(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix(self.folder.as_str()) else {
            return false;
        };
        if path == IGNORE || path.ends_with('/') {
            return false;
        }
        let mut folders = path.match_indices('/').map(|(at, _)| &path[..at]);
        let is_ignored = folders.any(|folder| self.ignore.covers(folder, true));
        !is_ignored && !self.ignore.covers(path, false)
    }

    /// Returns the content that helm reads for the file at `path` of the bundle, or of a packed
    /// dependency.
    pub fn prepare(&mut self, path: &str, content: Vec<u8>) -> Result<ChartFile, Findings> {
        let inner = path.strip_prefix(self.folder.as_str()).unwrap_or(path);
        let inner = without_dependencies(inner);
        if is_packed(inner) {
            return Ok(ChartFile::Packed(content));
        }
        if inner == SCHEMA {
            return Ok(ChartFile::Content(schema_file::prepare(path, content)?));
        }
        if inner.starts_with(TEMPLATES) {
            return Ok(ChartFile::Content(self.template(content)));
        }
        Ok(ChartFile::Content(content))
    }

    /// Replaces functions that read a cluster or the clock. `NOTES.txt` is changed too, because
    /// other templates can use its definitions, and `NOTES.txt` can change the values.
    fn template(&mut self, content: Vec<u8>) -> Vec<u8> {
        let calls = template::calls(&content);
        if calls.is_empty() {
            return content;
        }
        let mut replaced = Vec::with_capacity(content.len() + calls.len());
        let mut from = 0;
        for (place, impurity) in calls {
            if impurity == Impurity::Random {
                self.is_random = true;
                continue;
            }
            replaced.extend_from_slice(&content[from..place.start]);
            replaced.extend_from_slice(FAIL);
            // Spaces keep the column numbers of the rest of the line unchanged.
            let padding = place.len().saturating_sub(FAIL.len());
            replaced.resize(replaced.len() + padding, b' ');
            from = place.end;
        }
        replaced.extend_from_slice(&content[from..]);
        replaced
    }

    /// Returns `true` if a template calls a function whose results can differ, so that helm has to
    /// render the chart twice ([`super::compare`]).
    pub fn is_random(&self) -> bool {
        self.is_random
    }
}

/// Returns the total length of `path` and of the paths of its parent folders. `includes` compares
/// all these paths with each pattern.
fn compared_length(path: &str) -> usize {
    let folders: usize = path.match_indices('/').map(|(at, _)| at).sum();
    folders + path.len()
}

/// Returns the path of a file relative to the chart or dependency that contains the file.
fn without_dependencies(mut path: &str) -> &str {
    while let Some((_, inner)) = path
        .strip_prefix(DEPENDENCIES)
        .and_then(|path| path.split_once('/'))
    {
        path = inner;
    }
    path
}

fn is_packed(path: &str) -> bool {
    let name = path.strip_prefix(DEPENDENCIES);
    name.is_some_and(|name| {
        let kind = std::path::Path::new(name).extension();
        !name.starts_with(['.', '_']) && kind.is_some_and(|kind| kind == "tgz")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(files: &mut ChartFiles, path: &str, text: &str) -> String {
        match files.prepare(path, text.as_bytes().to_vec()).unwrap() {
            ChartFile::Content(content) => String::from_utf8(content).unwrap(),
            ChartFile::Packed(_) => "packed".to_owned(),
        }
    }

    #[test]
    fn calls_in_templates_are_replaced_at_the_same_columns() {
        let mut files = ChartFiles::new("web/", None).unwrap();
        let text = "a: {{ lookup \"v1\" \"Secret\" \"a\" \"b\" }} # lookup\n{{ now }}{{ .now }}\n";
        let failing =
            "a: {{ fail   \"v1\" \"Secret\" \"a\" \"b\" }} # lookup\n{{ fail }}{{ .now }}\n";
        for (path, expected) in [
            ("web/templates/a.yaml", failing),
            ("web/templates/sub/_a.tpl", failing),
            ("web/charts/db/templates/a.yaml", failing),
            ("web/charts/db/charts/x/templates/a.yaml", failing),
            ("web/templates/NOTES.txt", failing),
            ("web/files/templates/a.yaml", text),
            ("web/charts/db-1.0.0.tgz", "packed"),
            ("web/charts/db/charts/x.tgz", "packed"),
            ("web/charts/_db.tgz", text),
        ] {
            assert_eq!(prepared(&mut files, path, text), expected, "{path}");
        }
        assert!(!files.is_random());
        let random = "{{ randAlphaNum 10 }}";
        assert_eq!(prepared(&mut files, "web/templates/b.yaml", random), random);
        assert!(files.is_random());
    }

    #[test]
    fn files_outside_of_the_chart_and_ignored_files_are_excluded() {
        let files = ChartFiles::new("web/", Some(b"*.bak\nci/\n")).unwrap();
        for (path, is_included) in [
            ("web/Chart.yaml", true),
            ("web/templates/a.yaml", true),
            ("web/templates/a.bak", false),
            ("web/ci/values.yaml", false),
            ("web/.helmignore", false),
            ("web/empty/", false),
            ("bundle.yaml", false),
        ] {
            assert_eq!(files.includes(path), is_included, "{path}");
        }
        assert!(ChartFiles::new("", Some(b"!a\n")).is_err());
        let files = ChartFiles::new("", Some("a".repeat(60_000).as_bytes())).unwrap();
        let paths = |count: usize| vec!["0123456789".to_owned(); count];
        assert_eq!(files.check_paths(&paths(100)), Ok(()));
        assert!(files.check_paths(&paths(5_000)).is_err());
        // The folders of a path are compared too.
        let flat = vec!["x".repeat(1_000); 15];
        assert_eq!(files.check_paths(&flat), Ok(()));
        let deep = vec!["x".repeat(24) + &"/x".repeat(488); 15];
        assert!(files.check_paths(&deep).is_err());
    }

    #[test]
    fn schemas_of_dependencies_are_checked() {
        let mut files = ChartFiles::new("", None).unwrap();
        let schema = br#"{"$ref": "file:///etc/passwd"}"#;
        for path in ["values.schema.json", "charts/db/values.schema.json"] {
            let found = files.prepare(path, schema.to_vec()).unwrap_err();
            assert!(found.to_string().contains(path), "{found}");
            let schema = r#"{"$id": "https://example.com/web"}"#;
            assert_eq!(prepared(&mut files, path, schema), "{}");
        }
        assert!(
            files
                .prepare("files/values.schema.json", schema.to_vec())
                .is_ok()
        );
    }
}
