//! Objects in the output of `helm template`: documents, with lists expanded.

use crate::{
    diagnostic::Findings,
    object::{self, Manifest},
    yaml::{self, Allowance},
};

/// Name of the text in findings.
const NAME: &str = "helm template";

/// Returns the objects in the output of `helm template`. Errors are added to `findings`.
pub(super) fn read(
    text: &[u8],
    allowance: &mut Allowance,
    findings: &mut Findings,
) -> Vec<Manifest> {
    let documents = match yaml::documents_within(text, NAME, allowance) {
        Ok(documents) => documents,
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
}
