//! Expands lists of objects, like kubectl.

use serde_json::Value;

use crate::{
    diagnostic::{Finding, Findings, codes},
    yaml::Document,
};

/// Maximum depth of nested lists.
const DEPTH: usize = 16;
/// Maximum length of an API version, in bytes: a group, `/` and a version.
const LONGEST_API_VERSION: usize = 253 + 1 + 63;
/// Maximum length of a kind, in bytes.
const LONGEST_KIND: usize = 63;

/// Returns the documents with objects. For a `List` or a list of one kind (`ConfigMapList`), the
/// result contains the items of the list, each with the line of the list. An item without `kind`
/// gets the kind and API version of the list.
pub fn unrolled(document: Document, file: &str, findings: &mut Findings) -> Vec<Document> {
    let mut found = Vec::new();
    unroll(document, 0, file, findings, &mut found);
    found
}

fn unroll(
    mut document: Document,
    depth: usize,
    file: &str,
    findings: &mut Findings,
    found: &mut Vec<Document>,
) {
    let Some(kind) = list_kind(&document.value) else {
        found.push(document);
        return;
    };
    let line = document.line;
    let of = kind.strip_suffix("List").unwrap_or_default().to_owned();
    let api = document.value.get_mut("apiVersion").map(Value::take);
    let refuse = |message: String| {
        Finding::error(codes::format::LIST, message)
            .in_file(file)
            .at_line(line)
            .hint("write the objects as separate documents, with `---` between them")
    };
    if depth == DEPTH {
        findings.push(refuse(format!(
            "lists are nested more than {DEPTH} levels deep"
        )));
        return;
    }
    let items = match document.value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        None | Some(Value::Null) => Vec::new(),
        Some(_) => {
            findings.push(refuse(format!(
                "the items of a {kind} must be a list of objects"
            )));
            return;
        }
    };
    for mut value in items {
        if let Value::Object(item) = &mut value
            && !of.is_empty()
            && !item.contains_key("kind")
        {
            // Each item gets a copy of the kind and the API version of the list. Long values would
            // therefore multiply the memory of the file.
            if of.len() > LONGEST_KIND || api.as_ref().is_some_and(|api| !is_short(api)) {
                findings.push(refuse(
                    "kind or apiVersion of the list is not valid for its items".to_owned(),
                ));
                return;
            }
            item.insert("kind".to_owned(), of.clone().into());
            if let Some(api) = &api {
                item.entry("apiVersion").or_insert_with(|| api.clone());
            }
        }
        unroll(Document { value, line }, depth + 1, file, findings, found);
    }
}

fn is_short(api: &Value) -> bool {
    match api {
        Value::String(text) => text.len() <= LONGEST_API_VERSION,
        Value::Array(_) | Value::Object(_) => false,
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

/// Returns the kind of a list: `List`, or a list of one kind as printed by `kubectl get`
/// (`ConfigMapList`). Returns `None` if the value is not a list.
fn list_kind(value: &Value) -> Option<String> {
    let kind = value.get("kind")?.as_str()?;
    let is_list = match kind {
        "List" => value.get("apiVersion").and_then(Value::as_str) == Some("v1"),
        kind => kind.ends_with("List") && value.get("items").is_some_and(Value::is_array),
    };
    is_list.then(|| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    fn names(text: &str) -> (Vec<String>, Vec<String>) {
        let mut findings = Findings::default();
        let names = yaml::documents(text.as_bytes(), "a.yaml")
            .unwrap()
            .into_iter()
            .flat_map(|document| unrolled(document, "a.yaml", &mut findings))
            .map(|document| {
                let value = &document.value;
                format!(
                    "{} {} {}:{}",
                    value["apiVersion"].as_str().unwrap_or("-"),
                    value["kind"].as_str().unwrap_or("-"),
                    value["metadata"]["name"].as_str().unwrap_or("-"),
                    document.line
                )
            })
            .collect();
        (names, findings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn expands_lists_like_kubectl() {
        let text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n\
                    - {apiVersion: v1, kind: List, items: [{apiVersion: apps/v1, kind: Deployment, metadata: {name: b}}]}\n---\n\
                    apiVersion: v1\nkind: ConfigMapList\nitems: [{metadata: {name: c}}]\n---\n\
                    apiVersion: v1\nkind: List\nitems: []\n---\n\
                    apiVersion: example.com/v1\nkind: AllowList\nmetadata: {name: d}\nspec: {items: []}\n---\n\
                    apiVersion: example.com/v1\nkind: Menu\nmetadata: {name: e}\nitems: [1]\n";
        assert_eq!(
            names(text).0,
            [
                "v1 Secret a:1",
                "apps/v1 Deployment b:1",
                "v1 ConfigMap c:7",
                "example.com/v1 AllowList d:15",
                "example.com/v1 Menu e:20",
            ]
        );
    }

    #[test]
    fn items_of_a_list_never_multiply_the_size_of_the_file() {
        let items = vec!["{}"; 1_000].join(",");
        let long = "x".repeat(64 << 10);
        for (kind, api) in [
            ("XList".to_owned(), format!("\"{long}\"")),
            ("XList".to_owned(), format!("[\"{long}\"]")),
            ("XList".to_owned(), format!("{{\"a\":\"{long}\"}}")),
            (format!("{long}List"), "\"v1\"".to_owned()),
        ] {
            let text = format!("{{\"kind\":\"{kind}\",\"apiVersion\":{api},\"items\":[{items}]}}");
            let mut findings = Findings::default();
            let size: usize = yaml::documents(text.as_bytes(), "a.json")
                .unwrap()
                .into_iter()
                .flat_map(|document| unrolled(document, "a.json", &mut findings))
                .map(|document| document.value.to_string().len())
                .sum();
            assert!(size <= text.len(), "{size} bytes from {}", text.len());
            assert_eq!(
                findings.to_string(),
                "a.json:1: kind or apiVersion of the list is not valid for its items"
            );
        }
    }

    #[test]
    fn rejects_items_that_are_not_a_list_and_nesting_beyond_the_limit() {
        let (none, said) = names("apiVersion: v1\nkind: List\nitems: {a: b}\n");
        assert_eq!(none, [""; 0]);
        assert_eq!(
            said,
            ["a.yaml:1: the items of a List must be a list of objects"]
        );
        let deep = format!(
            "{}{}",
            "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[".repeat(17),
            "]}".repeat(17)
        );
        assert_eq!(
            names(&deep).1,
            ["a.yaml:1: lists are nested more than 16 levels deep"]
        );
    }
}
