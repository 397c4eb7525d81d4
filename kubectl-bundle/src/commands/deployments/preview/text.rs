//! Unified diff of one object as YAML.

use std::fmt::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use bundle_core::yaml;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::ObjectChange;
use crate::ui::escape::visible;

/// Number of lines of context around a change.
const CONTEXT: usize = 3;
/// Maximum time of the search for the shortest diff of one object. After this time, a longer diff
/// is used.
const LIMIT: Duration = Duration::from_secs(2);

const HEADER: Style = Style::new().bold();
const RANGE: Style = AnsiColor::Cyan.on_default();
const REMOVED: Style = AnsiColor::Red.on_default();
const ADDED: Style = AnsiColor::Green.on_default();

/// Returns the object as YAML. Returns an empty text for `None`.
pub(super) fn document(object: Option<&Value>) -> String {
    object.map(yaml::to_string).unwrap_or_default()
}

/// Returns the name of the object in file names: `apps.v1.Deployment.team-a.web`.
pub(super) fn file_name(change: &ObjectChange) -> String {
    let mut parts = change.key.split('/');
    let kind = parts.next().unwrap_or_default();
    let kind = kind.split('.').next().unwrap_or_default();
    let rest: Vec<&str> = parts.collect();
    let api_version = change.api_version.replace('/', ".");
    format!("{api_version}.{kind}.{}", rest.join("."))
}

/// Returns the unified diff with colours. The text is empty if the object does not change.
pub(super) fn unified(change: &ObjectChange) -> String {
    let (before, after) = (
        document(change.before.as_ref()),
        document(change.after.as_ref()),
    );
    let name = file_name(change);
    let side = |folder: &str, object: Option<&Value>| match object {
        Some(_) => visible(&format!("{folder}/{name}")),
        None => "/dev/null".to_owned(),
    };
    let diff = TextDiff::configure()
        .timeout(LIMIT)
        .diff_lines(&before, &after);
    let mut text = String::new();
    for (index, hunk) in diff
        .unified_diff()
        .context_radius(CONTEXT)
        .iter_hunks()
        .enumerate()
    {
        if index == 0 {
            let before = side("live", change.before.as_ref());
            let after = side("new", change.after.as_ref());
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{HEADER}--- {before}{HEADER:#}");
            let _ = writeln!(text, "{HEADER}+++ {after}{HEADER:#}");
        }
        let _ = writeln!(text, "{RANGE}{}{RANGE:#}", hunk.header());
        for line in hunk.iter_changes() {
            let style = match line.tag() {
                ChangeTag::Equal => Style::new(),
                ChangeTag::Delete => REMOVED,
                ChangeTag::Insert => ADDED,
            };
            let value = visible(line.value().trim_end_matches('\n'));
            let _ = writeln!(text, "{style}{}{value}{style:#}", line.tag());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::ChangeKind;
    use super::*;

    fn change(before: Option<Value>, after: Option<Value>) -> ObjectChange {
        ObjectChange {
            key: "Deployment.apps/team-a/web".to_owned(),
            api_version: "apps/v1".to_owned(),
            kind: ChangeKind::Configured,
            before,
            after,
            note: None,
            origin: None,
        }
    }

    fn plain(before: Option<Value>, after: Option<Value>) -> String {
        anstream::adapter::strip_str(&unified(&change(before, after))).to_string()
    }

    #[test]
    fn diff_has_the_format_of_patch() {
        let object = |text: &str| Some(json!({"a": 1, "b": 2, "c": text}));
        insta::assert_snapshot!(plain(object("x"), object("y\u{1b}[2J")), @r#"
        --- live/apps.v1.Deployment.team-a.web
        +++ new/apps.v1.Deployment.team-a.web
        @@ -1,3 +1,3 @@
         a: 1
         b: 2
        -c: x
        +c: "y\e[2J"
        "#);
    }

    #[test]
    fn missing_objects_are_dev_null() {
        insta::assert_snapshot!(plain(None, Some(json!({"a": 1}))), @r"
        --- /dev/null
        +++ new/apps.v1.Deployment.team-a.web
        @@ -0,0 +1 @@
        +a: 1
        ");
        insta::assert_snapshot!(plain(Some(json!({"a": 1})), None), @r"
        --- live/apps.v1.Deployment.team-a.web
        +++ /dev/null
        @@ -1 +0,0 @@
        -a: 1
        ");
    }

    #[test]
    fn equal_objects_have_no_diff() {
        let object = || Some(json!({"a": 1}));
        assert_eq!(plain(object(), object()), "");
    }
}
