//! The output of `helm template`: its objects, and the comparison of two outputs.

use super::RenderCommand;
use crate::{
    diagnostic::{Finding, Findings, codes},
    object::{self, Manifest},
    yaml::{self, Allowance},
};

/// Name of the text in findings.
const NAME: &str = "helm template";
/// Start of the line with the template of a document.
const SOURCE: &str = "# Source: ";

/// Returns the objects in the output of `helm template`. Errors are added to `findings`.
pub(super) fn read(
    text: &[u8],
    allowance: &mut Allowance,
    findings: &mut Findings,
) -> Vec<Manifest> {
    let documents = match yaml::documents_within(text, NAME, allowance) {
        Ok(documents) => documents,
        // Values can disable each object.
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

/// Returns an error with the first template whose objects differ in two outputs of `command`.
pub fn compare(command: &RenderCommand, first: &[u8], second: &[u8]) -> Result<(), Finding> {
    if first == second {
        return Ok(());
    }
    let sources = |text: &[u8]| -> Vec<(String, Vec<u8>)> {
        let mut found = vec![(String::new(), Vec::new())];
        for line in text.split(|byte| *byte == b'\n') {
            match line.strip_prefix(SOURCE.as_bytes()) {
                Some(name) => found.push((String::from_utf8_lossy(name).into(), Vec::new())),
                None => {
                    if let Some((_, lines)) = found.last_mut() {
                        lines.extend_from_slice(line);
                        lines.push(b'\n');
                    }
                }
            }
        }
        found
    };
    let pairs = sources(first).into_iter().zip(sources(second));
    let different = pairs.into_iter().find(|(first, second)| first != second);
    let template = different.map_or_else(String::new, |((name, _), _)| name);
    let prefix = format!("{}/", command.chart);
    let template = template.strip_prefix(&prefix).unwrap_or(&template);
    let finding = Finding::error(
        codes::format::CHART_IMPURE,
        "two renderings of the template with the same values differ",
    )
    .hint("functions such as randAlphaNum, genCA, uuidv4 and keys return other results each time: set the value in spec.config so that the template does not call them, or change the chart");
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let command = RenderCommand {
            program: "helm",
            chart: "web".to_owned(),
            folder: String::new(),
            config_field: "spec.config",
            arguments: Vec::new(),
            extra_files: Vec::new(),
            removed_variables: &[],
            folder_variables: &[],
            hint: "",
        };
        let output = |password: &str| {
            format!(
                "---\n# Source: web/templates/a.yaml\na: 1\n---\n# Source: web/templates/b.yaml\npassword: {password}\n---\n# Source: web/templates/c.yaml\nc: 1\n"
            )
        };
        let (first, second) = (output("x"), output("y"));
        assert_eq!(
            compare(&command, first.as_bytes(), first.as_bytes()),
            Ok(())
        );
        let found = compare(&command, first.as_bytes(), second.as_bytes()).unwrap_err();
        assert_eq!(
            found.to_string(),
            "templates/b.yaml: two renderings of the template with the same values differ"
        );
    }
}
