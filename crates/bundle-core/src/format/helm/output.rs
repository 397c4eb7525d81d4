//! The output of `helm template`: its objects, and the comparison of two outputs.

use std::cmp::Ordering;

use super::{RenderCommand, hooks};
use crate::{
    diagnostic::{Finding, Findings, codes},
    object::{self, Manifest},
    yaml::{self, Allowance},
};

/// File name in findings about the output of helm.
const NAME: &str = "helm template";
/// Line before each document.
const SEPARATOR: &[u8] = b"---";
/// Start of the line that names the template of a document.
const SOURCE: &str = "# Source: ";

/// Returns the objects in the output of `helm template`. Errors are added to `findings`.
pub(super) fn read(
    text: &[u8],
    allowance: &mut Allowance,
    findings: &mut Findings,
) -> Vec<Manifest> {
    let documents = match yaml::documents_within(text, NAME, allowance) {
        Ok(documents) => documents,
        // The output can be empty, because values can disable each object.
        Err(errors)
            if errors
                .iter()
                .all(|one| one.code == codes::format::EMPTY_FILE) =>
        {
            return Vec::new();
        }
        Err(errors) => {
            findings.extend(errors);
            return Vec::new();
        }
    };
    let mut objects = Vec::new();
    for document in documents {
        for document in object::unrolled(document, NAME, findings) {
            objects.extend(object::read(document, NAME, findings));
        }
    }
    objects
}

/// Maximum size of an object of `helm test` that [`compare`] ignores, in bytes. Larger objects of
/// `helm test` are compared like other objects.
const TEST_BYTES: usize = 64 << 10;

/// Maximum memory of a parsed object of `helm test`, in bytes. No memory is reserved for these
/// objects.
const TEST_MEMORY: u64 = 4 << 20;

/// The name of a template, and the text of one object in the output of this template.
type Source<'a> = (&'a [u8], &'a [u8]);

/// Returns an error with the first template whose objects differ in two outputs of `command`. The
/// order of the objects is ignored. Objects of `helm test` are also ignored, because they are not
/// installed. `allowance` limits the work for all differing objects together.
pub fn compare(
    command: &RenderCommand,
    first: &[u8],
    second: &[u8],
    allowance: &mut Allowance,
) -> Result<(), Finding> {
    if first == second {
        return Ok(());
    }
    let differing = differing(sources(first), sources(second));
    let mut differing = differing.into_iter();
    let Some((template, _)) = differing.find(|(_, text)| !is_test(text, allowance)) else {
        return Ok(());
    };
    allowance.check()?;
    let prefix = format!("{}/", command.chart);
    let template = String::from_utf8_lossy(template);
    let template = template.strip_prefix(&prefix).unwrap_or(&template);
    let finding = Finding::error(
        codes::format::CHART_IMPURE,
        "two renderings of the template with the same values differ",
    )
    .hint(
        "functions such as randAlphaNum, genCA, uuidv4 and keys return another result in each \
     rendering: set the value in spec.config so that the template does not call such a function, \
     or change the chart",
    );
    Err(if template.is_empty() {
        finding
    } else {
        finding.in_file(
            format!("{}{template}", command.folder)
                .escape_debug()
                .to_string(),
        )
    })
}

/// Returns the objects in an output, sorted.
fn sources(text: &[u8]) -> Vec<Source<'_>> {
    let mut found = Vec::new();
    let mut name = &text[..0];
    let (mut start, mut at) = (0, 0);
    let mut is_start = true;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let end = at + line.len();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        // Only the line after a separator names the template, because a comment in an object can
        // have the same text.
        let source = line.strip_prefix(SOURCE.as_bytes());
        if let Some(next) = source.filter(|_| is_start) {
            found.push((name, object(&text[start..at])));
            (name, start) = (next, end);
        }
        is_start = line == SEPARATOR;
        at = end;
    }
    found.push((name, object(&text[start..])));
    found.sort_unstable();
    found
}

/// Returns the text of an object without the separator of the next object.
fn object(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii_end();
    let object = text.strip_suffix(SEPARATOR).unwrap_or(text);
    object.trim_ascii_end()
}

/// Returns the objects that are in only one of two sorted lists. The result is sorted.
fn differing<'a>(first: Vec<Source<'a>>, second: Vec<Source<'a>>) -> Vec<Source<'a>> {
    let mut found = Vec::new();
    let (mut first, mut second) = (first.into_iter().peekable(), second.into_iter().peekable());
    loop {
        let order = match (first.peek(), second.peek()) {
            (Some(one), Some(other)) => one.cmp(other),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return found,
        };
        match order {
            Ordering::Less => found.extend(first.next()),
            Ordering::Greater => found.extend(second.next()),
            Ordering::Equal => {
                first.next();
                second.next();
            }
        }
    }
}

fn is_test(text: &[u8], allowance: &mut Allowance) -> bool {
    if text.len() > TEST_BYTES {
        return false;
    }
    let documents = yaml::small_documents(text, NAME, TEST_MEMORY, allowance);
    let documents = documents.unwrap_or_default();
    !documents.is_empty() && documents.iter().all(|one| hooks::is_test(&one.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> RenderCommand {
        RenderCommand {
            program: "helm",
            chart: "web".to_owned(),
            folder: String::new(),
            config_field: "spec.config",
            arguments: Vec::new(),
            extra_files: Vec::new(),
            removed_variables: &[],
            folder_variables: &[],
            fixed_variables: &[],
            hint: "",
        }
    }

    #[test]
    fn expands_lists_into_objects() {
        let mut findings = Findings::default();
        let text = "---\n# Source: web/templates/a.yaml\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n---\n# nothing\n---\napiVersion: example.com/v1\nkind: Menu\nmetadata: {name: c}\nitems: [1]\n";
        let objects = read(text.as_bytes(), &mut Allowance::default(), &mut findings);
        let ids: Vec<String> = objects.iter().map(|object| object.id.to_string()).collect();
        assert_eq!(ids, ["ConfigMap/a", "ConfigMap/b", "Menu.example.com/c"]);
        assert_eq!(findings, Findings::default());
        assert_eq!(objects[2].value["items"][0], 1);
    }

    #[test]
    fn output_without_objects_is_valid() {
        let mut findings = Findings::default();
        let objects = read(
            b"---\n# Source: web/templates/a.yaml\n",
            &mut Allowance::default(),
            &mut findings,
        );
        assert_eq!((objects, findings), (Vec::new(), Findings::default()));
    }

    #[test]
    fn template_whose_objects_differ_is_named() {
        let command = command();
        let output = |password: &str| {
            format!(
                "---\n# Source: web/templates/a.yaml\na: 1\n---\n# Source: web/templates/b.yaml\npassword: {password}\n---\n# Source: web/templates/c.yaml\nc: 1\n"
            )
        };
        let (first, second) = (output("x"), output("y"));
        assert_eq!(
            compare(
                &command,
                first.as_bytes(),
                first.as_bytes(),
                &mut Allowance::default()
            ),
            Ok(())
        );
        let found = compare(
            &command,
            first.as_bytes(),
            second.as_bytes(),
            &mut Allowance::default(),
        )
        .unwrap_err();
        assert_eq!(
            found.to_string(),
            "templates/b.yaml: two renderings of the template with the same values differ"
        );
    }

    #[test]
    fn order_of_objects_and_objects_of_tests_do_not_count() {
        let object = |name: &str, events: &str, value: &str| {
            format!(
                "---\n# Source: web/templates/a.yaml\nkind: A\nmetadata: {{name: {name}, annotations: {{helm.sh/hook: '{events}'}}}}\nvalue: {value}\n"
            )
        };
        let compared = |first: &[String], second: &[String]| {
            let (first, second) = (first.concat(), second.concat());
            compare(
                &command(),
                first.as_bytes(),
                second.as_bytes(),
                &mut Allowance::default(),
            )
            .is_ok()
        };
        let (a, b) = (object("a", "", "1"), object("b", "", "2"));
        assert!(compared(&[a.clone(), b.clone()], &[b.clone(), a.clone()]));
        assert!(!compared(&[a.clone(), a.clone()], std::slice::from_ref(&a)));
        let test = |value| object("t", "Test", value);
        assert!(compared(&[test("1"), a.clone()], &[a.clone(), test("2")]));
        let mixed = |value| object("t", "test,pre-install", value);
        assert!(!compared(&[mixed("1")], &[mixed("2")]));
        // This object is not a hook: the annotation is in another field of the object.
        let nested = |value: &str| {
            format!(
                "---\n# Source: web/templates/a.yaml\nkind: A\nspec: {{\n# Source: x\nmetadata: {{annotations: {{helm.sh/hook: test}}, a: {value}}}\n# Source: y\n}}\n"
            )
        };
        assert!(!compared(&[nested("1")], &[nested("2")]));
    }
}
