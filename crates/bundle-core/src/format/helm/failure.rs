//! Findings from the messages of a failed `helm template`.

use crate::{
    diagnostic::{Finding, Findings, codes},
    field_path,
    format::renderer::RenderCommand,
    text::bounded,
};

/// Maximum length of a quoted message, in bytes.
const MAX_MESSAGE: usize = 1000;
/// Maximum number of reported values.
const MAX_VALUES: usize = 50;
/// Line before the list of values that do not match a schema.
const SCHEMA_HEAD: &str = "values don't meet the specifications of the schema";
/// Message of helm if a template calls `lookup`, which is replaced with `fail` (`super::files`).
const LOOKUP_CALL: &str = "wrong number of args for fail: want 1 got 4";
/// Message of helm if a template calls `now`, which is replaced with `fail` (`super::files`).
const NOW_CALL: &str = "wrong number of args for fail: want 1 got 0";

/// Returns the errors that helm wrote to stderr.
pub fn failure(command: &RenderCommand, stderr: &[u8]) -> Findings {
    let text = String::from_utf8_lossy(stderr);
    if text.contains(SCHEMA_HEAD) {
        let findings = of_values(command, &text);
        if findings.has_errors() {
            return findings;
        }
    }
    let message = quoted(&text);
    let place = template(command, &message);
    let finding = if message.contains(LOOKUP_CALL) {
        Finding::error(
            codes::format::CHART_IMPURE,
            "the template calls `lookup`, which reads objects of a cluster",
        )
        .hint(
            "a bundle has the same objects in each cluster: set the value in spec.config so that \
         the template does not call `lookup`, or change the chart",
        )
    } else if message.contains(NOW_CALL) {
        Finding::error(
            codes::format::CHART_IMPURE,
            "the template calls `now`, so the objects differ in each rendering",
        )
        .hint(
            "set the value in spec.config so that the template does not call `now`, or change \
         the chart",
        )
    } else {
        Finding::error(
            codes::format::CHART_FAILED,
            format!("helm cannot render the chart: {message}"),
        )
        .hint("correct the values in spec.config, or the chart: `helm template` reports the same error")
    };
    match place {
        Some((file, line)) => {
            let finding = finding.in_file(file);
            match line {
                Some(line) => finding.at_line(line),
                None => finding,
            }
        }
        None => finding,
    }
    .into()
}

/// Returns an error for each value that does not match the schema of a chart. helm lists these
/// values below the name of the chart: `- at '/a/b': MESSAGE`, or in earlier versions
/// `- a.b: MESSAGE`.
fn of_values(command: &RenderCommand, text: &str) -> Findings {
    let mut findings = Findings::default();
    let mut chart = command.chart.as_str();
    let lines = text.lines().skip_while(|line| !line.contains(SCHEMA_HEAD));
    for line in lines.skip(1) {
        let line = line.trim();
        let Some(entry) = line.strip_prefix("- ") else {
            if let Some(name) = line.strip_suffix(':') {
                chart = name;
            }
            continue;
        };
        if findings.len() == MAX_VALUES {
            break;
        }
        let mut field = command.config_field.to_owned();
        if chart != command.chart {
            field = field_path::child(&field, &escaped(chart));
        }
        let (field, message) = entry_of(&field, entry);
        findings.push(
            Finding::error(
                codes::format::INVALID_CONFIGURATION,
                bounded(&message, MAX_MESSAGE),
            )
            .at_field(field)
            .hint("the schema of the values is values.schema.json of the chart"),
        );
    }
    findings
}

fn entry_of(field: &str, entry: &str) -> (String, String) {
    if let Some((pointer, message)) = entry
        .strip_prefix("at '")
        .and_then(|entry| entry.split_once("': "))
    {
        let field = field_path::of_pointer(field, pointer);
        return (escaped(&field), escaped(message));
    }
    match entry.split_once(": ") {
        Some(("(root)", message)) => (field.to_owned(), escaped(message)),
        Some((path, message)) => (format!("{field}.{}", escaped(path)), escaped(message)),
        None => (field.to_owned(), escaped(entry)),
    }
}

/// Returns the file of the bundle that the message names, with its line. Returns `None` if the
/// message names no file. helm writes `CHART/templates/a.yaml:3:8`, or `CHART/templates/a.yaml`
/// without a line.
fn template(command: &RenderCommand, message: &str) -> Option<(String, Option<usize>)> {
    let is_path = |letter: char| letter.is_alphanumeric() || "/._-+".contains(letter);
    let words = message.split(|letter: char| !is_path(letter) && letter != ':');
    let places = words.filter_map(|word| {
        let mut parts = word.split(':');
        let path = parts.next().filter(|path| path.contains("/templates/"))?;
        let inner = path
            .strip_prefix(command.chart.as_str())
            .and_then(|path| path.strip_prefix('/'))?;
        let line = parts.next().and_then(|line| line.parse().ok());
        Some((format!("{}{inner}", command.folder), line))
    });
    let places: Vec<_> = places.collect();
    // helm writes several locations. The last location with a line is the innermost location.
    let with_line = places.iter().rev().find(|(_, line)| line.is_some());
    with_line.or_else(|| places.first()).cloned()
}

/// Returns the messages on one line, without the prefix and the advice of helm.
fn quoted(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| {
        !line.is_empty()
            && !line.starts_with("Use --debug flag")
            && !line.starts_with("level=")
            && !line.starts_with("time=")
    });
    let lines: Vec<&str> = lines
        .map(|line| line.strip_prefix("Error: ").unwrap_or(line))
        .collect();
    let message = lines.join(" ");
    if message.is_empty() {
        return "it failed without a message".to_owned();
    }
    bounded(&escaped(&message), MAX_MESSAGE)
}

/// Returns the text with escaped control characters.
fn escaped(text: &str) -> String {
    let letters = text.chars().map(|letter| {
        if letter.is_control() {
            letter.escape_default().to_string()
        } else {
            letter.to_string()
        }
    });
    letters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> RenderCommand {
        RenderCommand {
            program: "helm",
            chart: "web".to_owned(),
            folder: String::new(),
            config_field: "spec.config.values",
            arguments: Vec::new(),
            extra_files: Vec::new(),
            removed_variables: &[],
            folder_variables: &[],
            fixed_variables: &[],
            hint: "",
        }
    }

    fn errors(stderr: &str) -> Vec<String> {
        let findings = failure(&command(), stderr.as_bytes());
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn values_that_do_not_match_a_schema_are_fields_of_the_configuration() {
        let stderr = "Error: values don't meet the specifications of the schema(s) in the following chart(s):\nweb:\n- at '/replicas': got string, want integer\n- at '': missing property 'image'\ndb:\n- at '/users/0/name': got number, want string\n- port: Invalid type. Expected: integer, given: string\n";
        assert_eq!(
            errors(stderr),
            [
                "spec.config.values.replicas: got string, want integer",
                "spec.config.values: missing property 'image'",
                "spec.config.values.db.users[0].name: got number, want string",
                "spec.config.values.db.port: Invalid type. Expected: integer, given: string",
            ]
        );
        let findings = failure(&command(), stderr.as_bytes());
        let code = codes::format::INVALID_CONFIGURATION;
        assert!(findings.iter().all(|finding| finding.code == code));
    }

    #[test]
    fn errors_of_templates_have_file_and_line() {
        for (stderr, expected) in [
            (
                "Error: template: web/templates/a.yaml:3:8: executing \"web/templates/a.yaml\" at <.Values.a.b>: nil pointer evaluating interface {}.b\n\nUse --debug flag to render out invalid YAML\n",
                "templates/a.yaml:3: helm cannot render the chart: template: web/templates/a.yaml:3:8: executing \"web/templates/a.yaml\" at <.Values.a.b>: nil pointer evaluating interface {}.b",
            ),
            (
                "Error: YAML parse error on web/templates/a.yaml: error converting YAML to JSON: yaml: line 2: x\n",
                "templates/a.yaml: helm cannot render the chart: YAML parse error on web/templates/a.yaml: error converting YAML to JSON: yaml: line 2: x",
            ),
            (
                "Error: execution error at (web/charts/db/templates/b.yaml:1:4): set a password\u{1b}[0m\n",
                "charts/db/templates/b.yaml:1: helm cannot render the chart: execution error at (web/charts/db/templates/b.yaml:1:4): set a password\\u{1b}[0m",
            ),
            (
                "Error: web/templates/a.yaml:15:13\n  executing \"web/templates/a.yaml\" at <.Values.a.b>:\n    nil pointer evaluating interface {}.b\n\nUse --debug flag to render out invalid YAML\n",
                "templates/a.yaml:15: helm cannot render the chart: web/templates/a.yaml:15:13 executing \"web/templates/a.yaml\" at <.Values.a.b>: nil pointer evaluating interface {}.b",
            ),
            (
                "",
                "helm cannot render the chart: it failed without a message",
            ),
        ] {
            assert_eq!(errors(stderr), [expected]);
        }
    }

    #[test]
    fn executed_calls_that_read_a_cluster_or_the_clock_are_named() {
        let at = |call: &str, count: usize| {
            format!(
                "Error: template: web/templates/a.yaml:2:5: executing \"web/templates/a.yaml\" at <{call}>: wrong number of args for fail: want 1 got {count}\n"
            )
        };
        assert_eq!(
            errors(&at("fail   \"v1\" \"Secret\" \"a\" \"b\"", 4)),
            ["templates/a.yaml:2: the template calls `lookup`, which reads objects of a cluster"]
        );
        assert_eq!(
            errors(&at("fail", 0)),
            [
                "templates/a.yaml:2: the template calls `now`, so the objects differ in each \
                rendering"
            ]
        );
    }
}
