//! Checks that each probe of the package selects an object of the content, or a kind that the
//! content defines. `cargo xtask gen` copies `messages.txt` to the page about diagnostics.

use crate::{
    diagnostic::{Finding, Findings, codes},
    format::Content,
    object::CustomKind,
    package::{FILE, ProbeSelector},
};

pub(super) fn check(content: &Content, findings: &mut Findings) {
    let Some(package) = &content.package else {
        return;
    };
    let kinds = CustomKind::all(&content.objects);
    for (index, probe) in package.probes.iter().enumerate() {
        let selector = &probe.selector;
        let mut ids = content.objects.iter().map(|object| &object.id);
        let mut defined = kinds.iter();
        if ids.any(|id| selector.selects_manifest(id))
            || defined.any(|kind| selector.selects_kind(&kind.group, &kind.kind))
        {
            continue;
        }
        let message = format!("the probe selects no object: {}", description(selector));
        findings.push(
            Finding::warning(codes::format::PROBE_WITHOUT_OBJECT, message)
                .in_file(FILE)
                .at_field(format!("probes[{index}].selector"))
                .hint("correct group, kind, namespace and name, or remove the probe"),
        );
    }
}

/// Returns the message that the content has no object that `selector` selects.
fn description(selector: &ProbeSelector) -> String {
    let kind = selector.kind_text();
    let name = selector.name.as_deref();
    match (selector.namespace.as_deref(), name) {
        (None, None) => format!("the content has no {kind}"),
        (None, Some(name)) => format!("the content has no {kind} {name:?}"),
        (Some(namespace), None) => format!("the content has no {kind} in namespace {namespace:?}"),
        (Some(namespace), Some(name)) => {
            format!("the content has no {kind} {name:?} in namespace {namespace:?}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{files, told};
    use crate::diagnostic::{Findings, rendered};
    use crate::format;

    const RECORDED: &str = include_str!("messages.txt");

    const PACKAGE: &str = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: web\nversion: 1.4.0\nformat: plain+v0\n";
    const OBJECT: (&str, &str) = (
        "manifests/a.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: default}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}\n",
    );

    fn messages_of(selector: &str) -> Vec<String> {
        let probes = format!(
            "probes: [{{selector: {selector}, assertions: [{{fieldValue: {{fieldPath: /a, value: b}}}}]}}]\n"
        );
        let found = told(&format!("{PACKAGE}{probes}"), &[OBJECT]);
        let about_probes = found.into_iter().filter(|line| line.contains("probe"));
        about_probes.collect()
    }

    #[test]
    fn message_is_recorded() {
        let probe = "probes: [{selector: {kind: Deployment}, assertions: [{fieldValue: {fieldPath: /a, value: b}}]}]\n";
        let files = files(&format!("{PACKAGE}{probe}"), &[OBJECT]);
        let mut findings = Findings::default();
        super::check(&format::read(&files).unwrap(), &mut findings);
        let text = rendered(&findings);
        assert_eq!(text, RECORDED, "copy the left side to messages.txt");
    }

    #[test]
    fn probes_without_an_object_are_reported() {
        for (selector, expected) in [
            ("{group: apps, kind: Deployment}", None),
            ("{group: apps, kind: Deployment, name: web}", None),
            ("{group: apps, kind: Deployment, namespace: default}", None),
            ("{kind: Deployment}", Some("the content has no Deployment")),
            (
                "{group: apps, kind: Deployment, name: db}",
                Some("the content has no Deployment.apps \"db\""),
            ),
            (
                "{group: apps, kind: Deployment, namespace: a}",
                Some("the content has no Deployment.apps in namespace \"a\""),
            ),
            (
                "{group: apps, kind: Deployment, namespace: a, name: web}",
                Some("the content has no Deployment.apps \"web\" in namespace \"a\""),
            ),
        ] {
            let found = messages_of(selector);
            match expected {
                None => assert!(found.is_empty(), "{found:?}"),
                Some(expected) => {
                    assert_eq!(found.len(), 1, "{found:?}");
                    let expected = format!("the probe selects no object: {expected}");
                    assert!(found[0].contains(&expected), "{found:?}");
                }
            }
        }
    }
}
